"""What the node asks of its engine process: for how long, and what comes of it."""

from __future__ import annotations

import math
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from alpamayo_ros.core.types import (
    AlpamayoError,
    BadImageError,
    ConfigurationError,
    EngineError,
    EngineNotReadyError,
)
from alpamayo_ros.engine.process.wire import Answer, Ask, Failure, Load, Predict, Prepare, WarmUp

SILENT = 5.0  # s of silence from any process
SILENT_LOADING = 120.0  # the same while loading: one import may hold the interpreter for long
DOING = {  # in words, and for how many s of silence
    Load: ("loading", SILENT_LOADING),
    WarmUp: ("warming up", SILENT_LOADING),
    Prepare: ("preparing frames", SILENT),
    Predict: ("predicting", SILENT),
    Ask: ("answering a question", SILENT),
}
ERRORS: dict[str, type[AlpamayoError]] = {
    each.__name__: each for each in (BadImageError, ConfigurationError, EngineError, EngineNotReadyError)
}


@dataclass(eq=False)
class Request:
    """What is asked of the process just now."""

    kind: type
    frames: frozenset[int] = frozenset()  # that it needs, by serial
    limit: float = math.inf  # s that it may take
    answer: Future[Answer] = field(default_factory=Future)
    started: float = field(default_factory=time.monotonic)

    @property
    def doing(self) -> str:
        """In words."""
        return DOING[self.kind][0]

    @property
    def silence(self) -> float:
        """S for which the process may give no sign of life."""
        return DOING[self.kind][1]


def exception_of(failure: Failure) -> AlpamayoError:
    """The exception that was raised in the process."""
    kind = ERRORS.get(failure.error, EngineError)
    return BadImageError(failure.text, failure.serial) if kind is BadImageError else kind(failure.text)
