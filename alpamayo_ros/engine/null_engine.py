"""An engine without a model: the vehicle keeps its speed. For tests, for measuring the node, and for trying a rig."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, Frame, Observation, Prediction, SamplingOptions, Timings
from alpamayo_ros.engine.base import EngineInfo

DT = STEP_NS * 1e-9  # s
CURVATURE_STEP = 0.005  # 1/m between neighbouring samples of the fan

INFO = EngineInfo(
    engine="null",
    model="constant speed",
    model_type="null",
    device="cpu",
    dtype="float64",
    parameters=0,
    trained=False,
    max_samples=64,
    max_cameras=7,
    max_tokens=0,
)


class NullEngine:
    """Arcs at the speed of the last history step: sample 0 goes straight, the others fan out by constant curvature.

    The fan is as wide to the left as to the right, so that its medoid goes straight too: of an even number the last
    sample is straight as well.

    Args:
        delay: s that every prediction takes at least.
        before: called at the start of every prediction; what it raises is what the engine raises.
    """

    prepares_alongside = False

    def __init__(self, delay: float = 0.0, before: Callable[[Observation], None] | None = None) -> None:
        self.info = INFO
        self._delay = delay
        self._before = before

    def warm_up(self) -> None:
        """Nothing to warm up."""

    def prepare(self, frames: Sequence[Frame]) -> None:
        """Nothing to prepare: no frame is looked at."""

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        """Predict one tick; see the class."""
        started = time.monotonic()
        if self._before is not None:
            self._before(observation)
        if self._delay:
            time.sleep(self._delay)
        speed = float(observation.history_xyz[-1, 0] - observation.history_xyz[-2, 0]) / DT
        samples = np.arange(options.num_samples)
        curvature = CURVATURE_STEP * ((samples + 1) // 2) * np.where(samples % 2, 1.0, -1.0)
        if options.num_samples % 2 == 0:
            curvature[-1] = 0.0
        xyz, rotation = _arcs(speed, curvature)
        text = options.given_reasoning if options.reasoning == "given" else "Keep the speed."
        return Prediction(
            xyz=xyz,
            rotation=rotation,
            actions=np.stack(np.broadcast_arrays(0.0, curvature[:, None] * np.ones(HORIZON)), axis=-1),
            speed=np.full((options.num_samples, HORIZON + 1), speed),
            reasoning=("" if options.reasoning == "off" else text,) * options.num_samples,
            reasoning_token_ids=((),) * options.num_samples,
            finish_reasons=("off" if options.reasoning == "off" else "stop",) * options.num_samples,
            seed=options.seed,
            timings=Timings(stages_ms={"predict": (time.monotonic() - started) * 1e3}),
        )

    def predict_batch(
        self, observations: Sequence[Observation], options: Sequence[SamplingOptions]
    ) -> list[Prediction]:
        """Predict several ticks, one after the other."""
        return [self.predict(each, its) for each, its in zip(observations, options, strict=True)]

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        """Say that there is no model to ask."""
        return "There is no model behind the null engine."

    def close(self) -> None:
        """Nothing to free."""


def _arcs(speed: float, curvature: Array) -> tuple[Array, Array]:
    """Points [K, 64, 3] and headings [K, 64, 3, 3] of arcs driven at constant speed (m/s) and curvature [K] (1/m)."""
    way = speed * DT * np.arange(1, HORIZON + 1)
    heading = curvature[:, None] * way
    # x = sin(heading)/curvature and y = (1 - cos(heading))/curvature, written so that curvature 0 is no special case
    x = way * np.sinc(heading / np.pi)
    y = way * np.sinc(heading / 2 / np.pi) * np.sin(heading / 2)
    cos, sin, zero, one = np.cos(heading), np.sin(heading), np.zeros_like(heading), np.ones_like(heading)
    rotation = np.stack([cos, -sin, zero, sin, cos, zero, zero, zero, one], axis=-1)
    return np.stack([x, y, zero], axis=-1), rotation.reshape(*heading.shape, 3, 3)
