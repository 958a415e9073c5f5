"""An engine in a process of its own, as an engine."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from alpamayo_ros.core.types import EngineNotReadyError, Frame, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.base import EngineHealth, EngineInfo, LoadOptions
from alpamayo_ros.engine.process.child import ProcessEndedError
from alpamayo_ros.engine.process.supervisor import Supervisor
from alpamayo_ros.engine.process.wire import Ask, Load, Predict, Prepare

STAGE = "process"  # what a prediction's way to the process and back took


class ProcessEngine:
    """See the Engine and SupervisedEngine protocols in base.py, and docs/engine_process.md.

    Its answers are those that the same engine gives in this process. When the process dies or hangs, the call under way
    raises EngineError, and calls raise EngineNotReadyError until it is back.

    Args:
        kind, checkpoint: of `create_engine`, in the process.
        options: fields of LoadOptions.
        python: its interpreter; "": the one that runs this.
        hang_timeout: s that it may take for a tick or a question; 0: for ever.

    Raises:
        ConfigurationError, EngineError: as `create_engine` raises them; or the process can't be started.
    """

    def __init__(
        self, kind: str, checkpoint: str, options: Mapping[str, Any], python: str = "", hang_timeout: float = 0.0
    ) -> None:
        level = logging.getLogger("alpamayo_ros").getEffectiveLevel()
        self._limit = hang_timeout or math.inf
        self._supervisor = Supervisor(
            Load(kind, checkpoint, options, level), python, LoadOptions(**options).max_cameras
        )

    @property
    def info(self) -> EngineInfo:
        """What the engine in the process is."""
        return self._supervisor.info

    @property
    def prepares_alongside(self) -> bool:
        """Whether the engine in the process does, which then is given frames while it is at a tick."""
        return self._supervisor.prepares_alongside

    @property
    def health(self) -> EngineHealth:
        """How the process is now."""
        return self._supervisor.health

    def wait_until_ready(self) -> None:
        """Return when a restart is over: it is ready, or was given up."""
        self._supervisor.wait_until_ready()

    def warm_up(self) -> None:
        """Warm the engine up; after a restart this is done again."""
        self._supervisor.warm_up()

    def prepare(self, frames: Sequence[Frame]) -> None:
        """Decode and encode frames early; does nothing while there is no process that could."""
        with contextlib.suppress(EngineNotReadyError, ProcessEndedError):  # the log has said it
            self._supervisor.request(Prepare(frames), frames, self._limit)

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        """Predict one tick.

        Raises:
            EngineNotReadyError: the process is being started anew.
            BadImageError, EngineError: as the engine raises them; or the process died or hung.
        """
        return self.predict_batch([observation], [options])[0]

    def predict_batch(
        self, observations: Sequence[Observation], options: Sequence[SamplingOptions]
    ) -> list[Prediction]:
        """Predict several ticks, as the engine does it."""
        started = time.monotonic()
        frames = [frame for observation in observations for frame in _frames_of(observation)]
        limit = self._limit * max(len(observations), 1)
        answer = self._supervisor.request(Predict(observations, options), frames, limit)
        way_ms = (time.monotonic() - started) * 1e3 - answer.engine_ms
        return [_with_stage(prediction, way_ms / len(answer.value)) for prediction in answer.value]

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        """Answer a question about the scene in words.

        Raises:
            EngineNotReadyError, BadImageError, EngineError: as in `predict`.
        """
        answer = self._supervisor.request(Ask(observation, question, options), _frames_of(observation), self._limit)
        return str(answer.value)

    def close(self) -> None:
        """End the process, and with it all that it held. Also while it is at work: that call raises EngineError."""
        self._supervisor.close()


def _frames_of(observation: Observation) -> list[Frame]:
    return [frame for frames in observation.frames.values() for frame in frames]


def _with_stage(prediction: Prediction, ms: float) -> Prediction:
    timings = prediction.timings
    return replace(prediction, timings=replace(timings, stages_ms={**timings.stages_ms, STAGE: ms}))
