"""What a training is told, and when it does what."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.car_plans import AHEAD_SHARE
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED
from alpamayo_ros.training.emphasis import EVENLY, Emphasis


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
    first_seed: int = 0  # of the drives
    drives: int = 4000  # seeds first_seed, first_seed + 1, ...
    first_drives: int = 15  # there must be so many before the first step
    kept_drives: int = 1500  # at most in use at once, the newest; of 30 s each takes 55 MB of the device's memory
    other_histories: float = 0.5  # share of ticks whose ego history is another than the vehicle's
    other_routes: float = 0.0  # share of the ticks before junctions that show another way out than the drive's
    ahead_share: float = AHEAD_SHARE  # of the roads that have a car ahead
    other_sentences: float = 0.0  # share of ticks whose actions follow another sentence than the expert's
    emphasis: Emphasis = EVENLY  # which ticks are drawn more often

    def __post_init__(self) -> None:
        for name in ("drop_navigation", "other_histories", "other_routes", "ahead_share", "other_sentences"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ConfigurationError(f"{name} is {share}, expected a share from 0 to 1")
        if not 1 <= self.first_drives <= self.drives:
            raise ConfigurationError(
                f"training begins with {self.first_drives} of {self.drives} drives; it has to be at least 1 and no more"
            )
        if self.first_seed + self.drives > FIRST_HELD_OUT_SEED:
            raise ConfigurationError(
                f"training has {self.drives} drives of the seeds from {self.first_seed} on, and worlds from "
                f"{FIRST_HELD_OUT_SEED} on are held out; it has to end before"
            )
        if self.kept_drives < self.first_drives:
            raise ConfigurationError(
                f"training begins with {self.first_drives} drives and keeps {self.kept_drives}; it has to keep them"
            )


PACE_STEPS = 120  # the first steps, which show how fast this machine is; the drives of the beginning must do for them


@dataclass(frozen=True)
class Schedule:
    """A training's course: the learning rate rises, then falls by a cosine, and drives join at a fixed pace.

    The drives of a step depend on its number alone, not on how fast they were recorded, so that a training can be
    repeated.
    """

    steps: int
    drives_per_step: float
    before: int = 0  # steps of the trainings whose weights this one began with; the cosine goes on from there

    def learning_rate(self, step: int, settings: TrainingSettings) -> float:
        """That of step 0, 1, ..."""
        risen = min((step + 1) / settings.warm_up, 1.0)
        part = max(self.before + step - settings.warm_up, 0) / max(self.before + self.steps - settings.warm_up, 1)
        return settings.peak_rate * risen * 0.5 * (1 + math.cos(math.pi * min(part, 1.0)))

    def drives_at(self, step: int, settings: TrainingSettings) -> int:
        """How many drives are in use at a step."""
        joined = math.floor(max(step - PACE_STEPS, 0) * self.drives_per_step)
        return min(settings.drives, settings.first_drives + joined)
