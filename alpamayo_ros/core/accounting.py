"""What became of every message of one input: received = used + waiting + dropped by reason, always."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

# Why a message was dropped, beside the words of SkipReason that are also used here (zero_stamp, stamp_in_future,
# time_jump, bad_image, bad_odometry, odometry_jump).
DUPLICATE = "duplicate"  # another message of this input has the same stamp
LATE = "late"  # too old to be sorted in
UNUSED = "unused"  # sorted in and never chosen: normal for a camera faster than 10 Hz
RESET = "reset"  # flushed on request, or because the odometry's frame changed


@dataclass(frozen=True)
class StreamCounts:
    """A snapshot of a ledger."""

    received: int
    used: int  # were part of an observation
    waiting: int  # are held, and in no observation yet
    dropped: Mapping[str, int]  # by reason

    @property
    def adds_up(self) -> bool:
        """Whether nothing got lost in the books."""
        return self.received == self.used + self.waiting + sum(self.dropped.values())


class Ledger:
    """Books of one input. A message that is held has a key, unique among those held."""

    def __init__(self) -> None:
        self._received = 0
        self._used: set[int] = set()  # of those held
        self._used_and_gone = 0
        self._waiting: set[int] = set()
        self._dropped: Counter[str] = Counter()

    def refuse(self, reason: str) -> None:
        """A message came and was not kept."""
        self._received += 1
        self._dropped[reason] += 1

    def hold(self, key: int) -> None:
        """A message came and is kept."""
        self._received += 1
        self._waiting.add(key)

    def use(self, key: int) -> None:
        """A held message is part of an observation; only the first time counts."""
        if key in self._waiting:
            self._waiting.remove(key)
            self._used.add(key)

    def release(self, key: int, reason: str = UNUSED) -> None:
        """A held message is let go. If it was never used, that is the reason it was dropped for."""
        if key in self._waiting:
            self._waiting.remove(key)
            self._dropped[reason] += 1
        elif key in self._used:
            self._used.remove(key)
            self._used_and_gone += 1

    def spoil(self, key: int, reason: str) -> None:
        """A held message turns out unusable, even if it was taken for use before."""
        if key in self._used:
            self._used.remove(key)
            self._dropped[reason] += 1
        else:
            self.release(key, reason)

    def is_used(self, key: int) -> bool:
        """Whether a held message was part of an observation."""
        return key in self._used

    def counts(self) -> StreamCounts:
        """As of now."""
        used = self._used_and_gone + len(self._used)
        return StreamCounts(self._received, used, len(self._waiting), dict(self._dropped))
