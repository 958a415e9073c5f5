"""Messages of one source, sorted by stamp: bounded, each accounted for, and watched for jumps back in time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from alpamayo_ros.core.accounting import StreamCounts, Tally

Item = TypeVar("Item")

LATE_NS = 1_000_000_000  # a message this much older than the newest is late
LATE_IN_A_ROW = 3  # so many late ones in a row are a jump back in time


@dataclass(eq=False)
class Entry(Generic[Item]):
    """A stored message."""

    stamp_ns: int
    arrival_ns: int  # by the node's clock
    item: Item
    used: bool = False


class StampedStream(Generic[Item]):
    """The messages of the last `keep_ns`, at most `capacity` of them.

    Inserting costs O(log n) comparisons; what is too old leaves by itself, counted as "unused" if it never was used.
    """

    def __init__(self, keep_ns: int, capacity: int) -> None:
        self._keep_ns = keep_ns
        self._capacity = capacity
        self._entries: list[Entry[Item]] = []
        self._tally = Tally()
        self._late_in_a_row = 0
        self.newest_lag_ns: int | None = None  # arrival minus stamp of the newest message

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry[Item]]:
        return iter(self._entries)

    @property
    def newest(self) -> Entry[Item] | None:
        """The message with the latest stamp."""
        return self._entries[-1] if self._entries else None

    @property
    def oldest(self) -> Entry[Item] | None:
        """The message with the earliest stamp."""
        return self._entries[0] if self._entries else None

    def receive(self) -> None:
        """Count a message, before `store` or `refuse`."""
        self._tally.receive()

    def refuse(self, reason: str) -> None:
        """Count a message that is not stored."""
        self._tally.drop(reason)

    def is_late(self, stamp_ns: int) -> bool:
        """Whether a message comes from a time long before the newest one."""
        return bool(self._entries) and stamp_ns < self._entries[-1].stamp_ns - LATE_NS

    def has_jumped_back(self, stamp_ns: int) -> bool:
        """Note one more message; true when it is the third late one in a row: the source's time jumped back."""
        self._late_in_a_row = self._late_in_a_row + 1 if self.is_late(stamp_ns) else 0
        return self._late_in_a_row >= LATE_IN_A_ROW

    def store(self, entry: Entry[Item]) -> bool:
        """Keep a message. False, and counted as a duplicate, when there is one with that stamp."""
        index = self.index_at_or_after(entry.stamp_ns)
        if index < len(self._entries) and self._entries[index].stamp_ns == entry.stamp_ns:
            self.refuse("duplicate")
            return False
        insort(self._entries, entry, key=_stamp)
        if self._entries[-1] is entry:
            self.newest_lag_ns = entry.arrival_ns - entry.stamp_ns
        self._forget_old()
        return True

    def index_at_or_after(self, stamp_ns: int) -> int:
        """The index of the first message not before that time; len() when there is none."""
        return bisect_left(self._entries, stamp_ns, key=_stamp)

    def entry(self, index: int) -> Entry[Item]:
        """The message at an index, oldest first."""
        return self._entries[index]

    def nearest(self, stamp_ns: int, after_ns: int | None = None) -> Entry[Item] | None:
        """The message closest to a time (ties: the earlier), among those later than `after_ns`."""
        index = self.index_at_or_after(stamp_ns)
        around = self._entries[max(index - 1, 0) : index + 1]
        if after_ns is not None:
            around = [each for each in around if each.stamp_ns > after_ns]
            if not around and index < len(self._entries) and after_ns >= stamp_ns:
                later = self.index_at_or_after(after_ns + 1)
                around = self._entries[later : later + 1]
        return min(around, key=lambda each: abs(each.stamp_ns - stamp_ns), default=None)

    def period_ns(self) -> int | None:
        """The median distance of neighbouring stamps; None with fewer than two messages."""
        stamps = [each.stamp_ns for each in self._entries[-16:]]
        if len(stamps) < 2:
            return None
        steps = sorted(later - earlier for earlier, later in pairwise(stamps))
        return steps[len(steps) // 2]

    def use(self, entry: Entry[Item]) -> None:
        """A stored message is part of a tick."""
        if not entry.used:
            entry.used = True
            self._tally.use()

    def discard(self, entry: Entry[Item], reason: str) -> None:
        """Remove one stored message."""
        self._entries.remove(entry)
        if not entry.used:
            self._tally.drop(reason)

    def discard_before(self, stamp_ns: int, reason: str) -> None:
        """Remove every message before that time."""
        index = self.index_at_or_after(stamp_ns)
        for entry in self._entries[:index]:
            if not entry.used:
                self._tally.drop(reason)
        del self._entries[:index]

    def flush(self, reason: str) -> None:
        """Remove everything, and forget what was noted about time."""
        for entry in self._entries:
            if not entry.used:
                self._tally.drop(reason)
        self._entries.clear()
        self._late_in_a_row = 0
        self.newest_lag_ns = None

    def counts(self) -> StreamCounts:
        """What became of every message so far."""
        return self._tally.counts(sum(not entry.used for entry in self._entries))

    def _forget_old(self) -> None:
        self.discard_before(self._entries[-1].stamp_ns - self._keep_ns, "unused")
        if len(self._entries) > self._capacity:
            self.discard_before(self._entries[-self._capacity].stamp_ns, "unused")


def _stamp(entry: Entry[Item]) -> int:
    return entry.stamp_ns
