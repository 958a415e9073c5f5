"""What became of every message: received == used + waiting + dropped, at any moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StreamCounts:
    """One stream's messages since the builder was made."""

    received: int
    used: int  # in at least one tick
    waiting: int  # stored, not used yet
    dropped: Mapping[str, int] = field(default_factory=dict)  # never used, by reason

    @property
    def adds_up(self) -> bool:
        """Whether no message is lost or counted twice."""
        return self.received == self.used + self.waiting + sum(self.dropped.values())


class Tally:
    """Counts one stream."""

    def __init__(self) -> None:
        self._received = 0
        self._used = 0
        self._dropped: Counter[str] = Counter()

    def receive(self) -> None:
        """A message has come."""
        self._received += 1

    def use(self) -> None:
        """A stored message is part of a tick for the first time."""
        self._used += 1

    def drop(self, reason: str) -> None:
        """A message was refused, or left the buffer without having been used."""
        self._dropped[reason] += 1

    def counts(self, waiting: int) -> StreamCounts:
        """The counts, with `waiting` messages in the buffer."""
        return StreamCounts(self._received, self._used, waiting, dict(self._dropped))
