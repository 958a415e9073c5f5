"""What a worker is given to do, and what comes of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from alpamayo_ros.core.types import (
    AlpamayoError,
    BadImageError,
    EngineError,
    Observation,
    Prediction,
    SamplingOptions,
    Skip,
    SkipReason,
)
from alpamayo_ros.engine.base import Engine

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one observation: a prediction, or the reason why there is none."""

    observation: Observation
    prediction: Prediction | None
    skip: Skip | None
    wait_ms: float = 0.0  # from the arrival of the message that completed it until the engine was free; 0 if it was
    assemble_ms: float = 0.0  # from then to the engine's start
    engine_ms: float = 0.0  # inside the engine
    done: float = 0.0  # monotonic s, when the engine had answered
    bad_image: BadImageError | None = None  # a frame could not be decoded


@dataclass(frozen=True, eq=False)
class Job:
    """An observation to predict."""

    observation: Observation
    options: SamplingOptions
    arrived: float  # monotonic s, when the message that completed the observation came

    def age(self, now_ns: int) -> float:
        """s from its t0."""
        return (now_ns - self.observation.t0_ns) * 1e-9

    def skip(self, reason: SkipReason, numbers: Mapping[str, object]) -> Skip:
        """Why its tick has no path."""
        return Skip(reason, self.observation.t0_ns, {reason.value: numbers})

    def skipped(
        self, reason: SkipReason, numbers: Mapping[str, object], bad_image: BadImageError | None = None
    ) -> Outcome:
        """The outcome without a prediction."""
        return Outcome(self.observation, None, self.skip(reason, numbers), bad_image=bad_image)


@dataclass(frozen=True, eq=False)
class Question:
    """A question about an observation's scene."""

    observation: Observation
    text: str
    options: SamplingOptions
    answer: Future[str]

    def put_to(self, engine: Engine) -> None:
        """Have it answered. Whatever the engine raises is an AlpamayoError for the one who waits."""
        try:
            self.answer.set_result(engine.ask(self.observation, self.text, self.options))
        except AlpamayoError as error:
            self.answer.set_exception(error)
        except BaseException as error:  # SystemExit too, which would end the thread that waits
            logger.exception("the engine failed at a question")
            self.answer.set_exception(EngineError(f"{type(error).__name__}: {error}"))

    def refuse(self) -> None:
        """The engine is being stopped before its turn came."""
        self.answer.set_exception(EngineError("the engine was stopped before it came to the question"))
