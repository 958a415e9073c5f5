"""Which ticks are still open, how long each has waited, and whose turn it is by the rate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from alpamayo_ros.core.lattice import Point
from alpamayo_ros.core.types import STEP_NS

FULL_RATE_HZ = 1e9 / STEP_NS


class PendingTicks:
    """The ticks of a lattice's points. Times in ns of the node's clock."""

    def __init__(self, rate_hz: float) -> None:
        self._rate_hz = rate_hz
        self._arrived: dict[int, int] = {}  # stamp of an anchor frame -> when it came
        self._decided: Point | None = None  # the newest point whose tick was given out or skipped
        self._next_due = -1.0  # index of the next point whose tick the rate allows

    @property
    def rate_hz(self) -> float:
        """At most this many ticks a second; a new rate begins to count with the next tick."""
        return self._rate_hz

    @rate_hz.setter
    def rate_hz(self, rate_hz: float) -> None:
        self._rate_hz = rate_hz
        self._next_due = -1.0

    def anchor_came(self, stamp_ns: int, now_ns: int) -> None:
        """A frame of the anchor has come: what has it for its t0 waits from now on."""
        self._arrived[stamp_ns] = now_ns

    def forget_before(self, oldest_ns: int) -> None:
        """The anchor's frames older than this are gone."""
        for stamp_ns in [stamp for stamp in islice(self._arrived, 2) if stamp < oldest_ns]:
            del self._arrived[stamp_ns]

    def clear(self) -> None:
        """Forget all."""
        self._arrived.clear()
        self._decided = None
        self._next_due = -1.0

    def open(self, points: Sequence[Point]) -> list[int]:
        """Numbers of the points whose ticks are undecided and may be given out, oldest first."""
        found: list[int] = []
        for at in reversed(range(len(points))):
            point, decided = points[at], self._decided
            if decided is not None and (point.index <= decided.index or point.stamp_ns <= decided.stamp_ns):
                break
            if point.index >= self._next_due:
                found.insert(0, at)
        return found

    def waited_ns(self, point: Point, now_ns: int) -> int:
        """How long ago the point's anchor frame came."""
        return now_ns - self._arrived.get(point.stamp_ns, now_ns)

    def decide(self, point: Point) -> None:
        """Its tick, and every older one, is decided."""
        self._decided = point

    def take_turn(self, point: Point) -> None:
        """Its tick is given out. The rate counts lattice steps: 2 Hz takes every fifth, 3 Hz ten of 33 and a third."""
        self.decide(point)
        if self._next_due < 0:
            self._next_due = float(point.index)
        while self._next_due <= point.index + 1e-6:
            self._next_due += FULL_RATE_HZ / self._rate_hz
