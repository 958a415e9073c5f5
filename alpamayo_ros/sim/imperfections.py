"""What real sensors do to messages: noise, lateness, loss. Deterministic by seed."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.drive_bag import ODOMETRY_TOPIC, TF_STATIC_TOPIC, MessageSink

PER_METER = 0.02  # rad of noise in the heading for each m of noise in the position


@dataclass(frozen=True)
class Imperfections:
    """How far a drive's messages are from perfect.

    Raises:
        ConfigurationError: a value that can't be.
    """

    noise_m: float = 0.0  # standard deviation of the odometry's positions; its headings have 0.02 rad for each m
    jitter_s: float = 0.0  # every message is late by up to this
    drop: float = 0.0  # share of images and odometry messages that get lost

    def __post_init__(self) -> None:
        for name, most in (("noise_m", 10.0), ("jitter_s", 1.0), ("drop", 0.9)):
            value = getattr(self, name)
            if not 0 <= value <= most:
                raise ConfigurationError(f"{name} {value}: expected 0 to {most:g}")


class ImperfectSink:
    """Loses messages and passes the others on late, in order of their lateness, to another sink."""

    def __init__(self, sink: MessageSink, imperfections: Imperfections, seed: int) -> None:
        self._sink, self._imperfections = sink, imperfections
        self._rng = np.random.default_rng([seed, 1_000_099])
        self._held: list[tuple[int, int, str, Any]] = []
        self._numbers = count()

    def write(self, topic: str, message: Any, receive_ns: int) -> None:
        """It would be received at `receive_ns`, were everything perfect."""
        can_be_lost = topic == ODOMETRY_TOPIC or topic.endswith("/image/compressed")
        lost, late = self._rng.random(2)
        if can_be_lost and lost < self._imperfections.drop:
            return
        if topic != TF_STATIC_TOPIC:
            receive_ns += round(late * self._imperfections.jitter_s * 1e9)
        heapq.heappush(self._held, (receive_ns, next(self._numbers), topic, message))

    def pass_on(self, until_ns: int) -> None:
        """Everything that is received until then."""
        while self._held and self._held[0][0] <= until_ns:
            receive_ns, _, topic, message = heapq.heappop(self._held)
            self._sink.write(topic, message, receive_ns)
