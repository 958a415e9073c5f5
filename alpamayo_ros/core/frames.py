"""One camera's frames, sorted by stamp, and the choice of the one for a given time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alpamayo_ros.core.stream import Entry, StampedStream
from alpamayo_ros.core.types import Frame, SkipReason

KEEP_NS = 1_500_000_000
CAPACITY = 64
REORDER_NS = 100_000_000  # a message may be overtaken by those of this much later

# A frame closer to its target than this part of the period has no rival that is still to come.
UNRIVALLED = 0.4
HOLE = 1.5  # neighbours further apart than this many periods have a frame missing between them


@dataclass(frozen=True)
class Refusal:
    """Why a source's newest message was not stored."""

    reason: SkipReason
    numbers: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Choice:
    """The frame nearest to a target time."""

    target_ns: int
    entry: Entry[Frame] | None  # None: none within the tolerance
    nearest_offset_ns: int | None  # of the nearest frame there is, within the tolerance or not; None: no frames
    final: bool  # no frame still under way can be nearer

    @property
    def frame(self) -> Frame | None:
        """The chosen frame."""
        return None if self.entry is None else self.entry.item


class CameraBuffer(StampedStream[Frame]):
    """The frames of one camera.

    Args:
        name: of the camera.
        index: the model's camera index.
        required: whether a tick needs it.
    """

    def __init__(self, name: str, index: int, required: bool) -> None:
        super().__init__(KEEP_NS, CAPACITY)
        self.name = name
        self.index = index
        self.required = required
        self.refusal: Refusal | None = None  # of its newest message, if that was refused
        self.bad_images: dict[int, str] = {}  # stamp -> what is wrong with it, lately

    def mark_bad(self, serial: int, message: str) -> None:
        """Remove a frame that can't be decoded."""
        for entry in self:
            if entry.item.serial == serial:
                self.discard(entry, "bad_image")
                self.bad_images[entry.stamp_ns] = message
                while len(self.bad_images) > CAPACITY:
                    del self.bad_images[next(iter(self.bad_images))]
                return

    def flush(self, reason: str) -> None:
        """Remove everything, and forget what was noted."""
        super().flush(reason)
        self.refusal = None
        self.bad_images.clear()

    def first_after(self, stamp_ns: int | None) -> Entry[Frame] | None:
        """The earliest frame later than that; the earliest of all for None."""
        index = 0 if stamp_ns is None else self.index_at_or_after(stamp_ns + 1)
        return self.entry(index) if index < len(self) else None

    def choose(self, target_ns: int, tolerance_ns: int, after_ns: int | None) -> Choice:
        """The frame nearest to `target_ns` (ties: the earlier), among those later than `after_ns`."""
        nearest = self.nearest(target_ns, after_ns)
        offset_ns = None if nearest is None else nearest.stamp_ns - target_ns
        within = nearest is not None and abs(nearest.stamp_ns - target_ns) <= tolerance_ns
        return Choice(target_ns, nearest if within else None, offset_ns, self._is_final(target_ns, nearest))

    def _is_final(self, target_ns: int, nearest: Entry[Frame] | None) -> bool:
        newest, period = self.newest, self.period_ns()
        if nearest is None or newest is None:
            return False
        if newest.stamp_ns >= target_ns + REORDER_NS:
            return True
        if period is None:
            return False
        if abs(nearest.stamp_ns - target_ns) <= UNRIVALLED * period:
            return True
        index = self.index_at_or_after(target_ns)
        if not 0 < index < len(self):
            return False
        return self.entry(index).stamp_ns - self.entry(index - 1).stamp_ns <= HOLE * period
