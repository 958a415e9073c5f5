"""One transform that moves, over the last seconds."""

from __future__ import annotations

from alpamayo_ros.core.ego import EgoBuffer
from alpamayo_ros.core.stream import LATE_NS
from alpamayo_ros.core.types import EgoPose

LONGEST_GAP_NS = 1_000_000_000  # between two that are interpolated
MAX_JUMP = 1.0  # m, as `max_odometry_jump` is if nothing is said
BACK = 3  # so many in a row that are more than 1 s older than the newest: time has jumped back


class TransformHistory:
    """Where a frame was in its parent.

    A jump, told as EgoBuffer does it, ends what was before: poses in between would smear it into a movement.
    """

    def __init__(self) -> None:
        self._places = EgoBuffer(LONGEST_GAP_NS, MAX_JUMP, standstill_padding=False)
        self._back = 0

    @property
    def newest_ns(self) -> int | None:
        """The stamp of the newest."""
        return self._places.newest_ns

    def add(self, place: EgoPose) -> bool:
        """Sort one in. Finite, of a unit quaternion. One that is late by more than 1 s is left out.

        Returns:
            Whether it is the first after a jump.
        """
        stamp_ns, newest_ns = place.stamp_ns, self.newest_ns
        if newest_ns is not None and stamp_ns < newest_ns - LATE_NS:
            self._back += 1
            if self._back < BACK:
                return False
            self._places.clear()
        self._back = 0
        if stamp_ns in self._places or self._places.is_before_jump(stamp_ns):
            return False
        _, jumped = self._places.add(place)
        return bool(jumped)

    def at(self, stamp_ns: int) -> EgoPose | None:
        """Where it was then, interpolated; None where that isn't known."""
        place = self._places.interpolated(stamp_ns)
        return None if place is None or self._places.gap_around(stamp_ns) > LONGEST_GAP_NS else place
