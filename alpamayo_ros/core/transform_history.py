"""One transform that moves, over the last seconds."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from alpamayo_ros.core.rotation import slerp
from alpamayo_ros.core.stream import LATE_NS
from alpamayo_ros.core.types import EgoPose

KEPT_NS = 3_000_000_000
LONGEST_GAP_NS = 1_000_000_000  # between two that are interpolated
BACK = 3  # so many in a row that are more than 1 s older than the newest: time has jumped back


class TransformHistory:
    """Where a frame was in its parent."""

    def __init__(self) -> None:
        self._stamps: list[int] = []
        self._places: list[EgoPose] = []
        self._back = 0

    @property
    def newest_ns(self) -> int | None:
        """The stamp of the newest."""
        return self._stamps[-1] if self._stamps else None

    def add(self, place: EgoPose) -> None:
        """Sort one in. Finite, of a unit quaternion. One that is late by more than 1 s is left out."""
        stamp_ns, newest_ns = place.stamp_ns, self.newest_ns
        if newest_ns is not None and stamp_ns < newest_ns - LATE_NS:
            self._back += 1
            if self._back < BACK:
                return
            self._stamps.clear()
            self._places.clear()
        self._back = 0
        at = bisect_left(self._stamps, stamp_ns)
        if self._stamps[at : at + 1] == [stamp_ns]:
            return
        self._stamps.insert(at, stamp_ns)
        self._places.insert(at, place)
        old = bisect_left(self._stamps, self._stamps[-1] - KEPT_NS)
        del self._stamps[:old], self._places[:old]

    def at(self, stamp_ns: int) -> EgoPose | None:
        """Where it was then, interpolated (linear, slerp); None where that isn't known."""
        after = bisect_left(self._stamps, stamp_ns)
        if self._stamps[after : after + 1] == [stamp_ns]:
            return self._places[after]
        if not 0 < after < len(self._stamps):
            return None
        first, last = self._places[after - 1], self._places[after]
        span = last.stamp_ns - first.stamp_ns
        if span > LONGEST_GAP_NS:
            return None
        part = (stamp_ns - first.stamp_ns) / span
        position = first.position + part * (last.position - first.position)
        orientation = slerp(first.orientation[None], last.orientation[None], np.array([[part]]))[0]
        return EgoPose(stamp_ns, position, orientation)
