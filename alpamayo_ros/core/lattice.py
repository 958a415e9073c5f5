"""The 10 Hz lattice that follows the anchor camera, and the anchor frame of each of its points.

The first frame sets the phase. From then on a point lies one step (0.1 s) after the one before, plus a tenth of the
distance between that one and its frame: a first-order phase lock. A point's frame is the anchor frame nearest to it
that no earlier point has. A camera slower than 10 Hz drags the lattice along, so that it gives its own period: at
9.62 Hz (T = 0.104 s) the frame settles (T - 0.1 s) / 0.1 = 0.04 s behind its point. A faster one swings around it by at
most half its period, which averages out.

Everything is a function of the stamps in their order, not of the order in which they came: a frame that comes late
makes the lattice forget what it concluded from newer ones, and conclude again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpamayo_ros.core.types import STEP_NS

HALF_STEP_NS = STEP_NS // 2
LOCK_DIVISOR = 10  # the inverse of the phase lock's gain
PERIODS_KEPT = 8


def usual_period(periods: Sequence[int]) -> int:
    """The median, so that a few odd ones don't make every frame wait for the next; 0 when there are none."""
    return sorted(periods)[len(periods) // 2] if periods else 0


@dataclass(frozen=True)
class Point:
    """One lattice point with its anchor frame."""

    index: int  # one more than the point's before it, unless frames are missing between
    time_ns: int  # of the point
    stamp_ns: int  # of its anchor frame


@dataclass(frozen=True)
class _State:
    """What is known after one anchor frame, from it and all before it."""

    stamp_ns: int  # of that frame
    points_before: int  # points that were concluded earlier
    points: tuple[Point, ...]  # those that this frame concluded
    next_index: int
    next_ns: int  # time of the next point
    last_ns: int  # stamp of the newest chosen frame
    candidate_ns: int | None = None  # the newest frame before the next point that may still become its frame
    periods: tuple[int, ...] = ()  # between the newest frames

    def choose(self, stamp_ns: int) -> _State:
        """The next point gets this frame."""
        error = stamp_ns - self.next_ns
        behind = max(error - HALF_STEP_NS, 0)  # of a camera too slow for the lock alone
        error = min(max(error, -HALF_STEP_NS), HALF_STEP_NS)
        return replace(
            self,
            points=(*self.points, Point(self.next_index, self.next_ns, stamp_ns)),
            next_index=self.next_index + 1,
            next_ns=self.next_ns + behind + STEP_NS + error // LOCK_DIVISOR,
            last_ns=stamp_ns,
            candidate_ns=None,
        )

    def restart(self, stamp_ns: int) -> _State:
        """Frames are missing: this one sets the phase again."""
        steps = round((stamp_ns - self.last_ns) / STEP_NS)
        return replace(self, next_index=self.next_index - 1 + max(steps, 2), next_ns=stamp_ns, candidate_ns=None)


def _first(stamp_ns: int) -> _State:
    return _State(stamp_ns, 0, (), next_index=0, next_ns=stamp_ns, last_ns=stamp_ns).choose(stamp_ns)


def _advance(state: _State, stamp_ns: int) -> _State:
    """The state after the next anchor frame."""
    state = replace(
        state,
        points_before=state.points_before + len(state.points),
        points=(),
        periods=(*state.periods, stamp_ns - state.stamp_ns)[-PERIODS_KEPT:],
        stamp_ns=stamp_ns,
    )
    while stamp_ns >= state.next_ns:
        point, candidate = state.next_ns, state.candidate_ns
        if candidate is not None and point - candidate <= min(stamp_ns - point, HALF_STEP_NS):
            state = state.choose(candidate)  # the one before is nearer; this one may be the next point's
            continue
        if stamp_ns - point > HALF_STEP_NS and stamp_ns - state.last_ns > STEP_NS + HALF_STEP_NS:
            state = state.restart(stamp_ns)
        return state.choose(stamp_ns)
    # Before the point. Its frame already, without waiting for the next one, if that can't be expected to be nearer.
    ahead = state.next_ns - stamp_ns
    if ahead <= HALF_STEP_NS and 2 * ahead <= usual_period(state.periods):
        return state.choose(stamp_ns)
    return replace(state, candidate_ns=stamp_ns)


class Lattice:
    """Points and their anchor frames, oldest first."""

    def __init__(self) -> None:
        self._base: _State | None = None  # before the oldest stamp kept
        self._states: list[_State] = []
        self._stamps: list[int] = []
        self._points: list[Point] = []
        self._points_gone = 0

    @property
    def points(self) -> Sequence[Point]:
        """Every point that has its frame, oldest first, as far back as `trim` left them."""
        return self._points

    def add(self, stamp_ns: int) -> None:
        """An anchor frame has come: not one that is held already, nor one older than the last `trim`."""
        at = bisect_left(self._stamps, stamp_ns)
        self._replay(at, [stamp_ns, *self._stamps[at:]])

    def remove(self, stamp_ns: int) -> None:
        """An anchor frame turned out unusable: conclude as if it had never come."""
        at = bisect_left(self._stamps, stamp_ns)
        if self._stamps[at : at + 1] == [stamp_ns]:
            self._replay(at, self._stamps[at + 1 :])

    def trim(self, oldest_ns: int) -> None:
        """Forget frames and points older than this."""
        at = bisect_left(self._stamps, oldest_ns)
        if at:
            self._base = self._states[at - 1]
            del self._states[:at], self._stamps[:at]
        gone = bisect_left(self._points, oldest_ns, key=lambda point: point.stamp_ns)
        del self._points[:gone]
        self._points_gone += gone

    def clear(self) -> None:
        """Forget all; the next frame sets the phase."""
        self.__init__()  # type: ignore[misc]

    def _replay(self, at: int, stamps: list[int]) -> None:
        """Conclude again from the stamp number `at` on."""
        state = self._states[at - 1] if at else self._base
        del self._states[at:], self._stamps[at:]
        kept = state.points_before + len(state.points) - self._points_gone if state else 0
        if kept < 0:  # a trimmed point was concluded by a frame that is concluded from again
            self._points_gone += kept
            kept = 0
        del self._points[kept:]
        for stamp_ns in stamps:
            state = _first(stamp_ns) if state is None else _advance(state, stamp_ns)
            self._states.append(state)
            self._stamps.append(stamp_ns)
            self._points.extend(state.points)
