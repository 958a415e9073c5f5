"""What a training is told, and when it does what."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpamayo_ros.core.types import ConfigurationError


@dataclass(frozen=True)
class TrainingSettings:
    """Together with the seed they say what comes out, up to rounding."""

    seed: int = 0
    batch: int = 256  # ticks a step
    flow_samples: int = 4  # noisy versions of each tick's actions
    peak_rate: float = 1.5e-3  # learning rate after the warm-up
    warm_up: int = 300  # steps
    weight_decay: float = 0.05
    gradient_limit: float = 1.0  # norm
    average: float = 0.999  # of the weights that are kept, over steps
    drop_navigation: float = 0.3  # share of ticks that are shown without their navigation text, for guidance
    drive_seconds: float = 30.0
    drives: int = 700  # seeds 0, 1, ...
    first_drives: int = 15  # there must be so many before the first step

    def __post_init__(self) -> None:
        if not 1 <= self.first_drives <= self.drives:
            raise ConfigurationError(
                f"training begins with {self.first_drives} of {self.drives} drives; it has to be at least 1 and no more"
            )


PACE_STEPS = 120  # the first steps, which show how fast this machine is; the drives of the beginning must do for them


@dataclass(frozen=True)
class Schedule:
    """A training's course: the learning rate falls by a cosine, and drives join at a fixed pace.

    The drives of a step depend on its number alone, not on how fast they were recorded, so that a training can be
    repeated.
    """

    steps: int
    drives_per_step: float

    def learning_rate(self, step: int, settings: TrainingSettings) -> float:
        """That of step 0, 1, ..."""
        if step < settings.warm_up:
            return settings.peak_rate * (step + 1) / settings.warm_up
        part = (step - settings.warm_up) / max(self.steps - settings.warm_up, 1)
        return settings.peak_rate * 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))

    def drives_at(self, step: int, settings: TrainingSettings) -> int:
        """How many drives are in use at a step."""
        joined = math.floor(max(step - PACE_STEPS, 0) * self.drives_per_step)
        return min(settings.drives, settings.first_drives + joined)
