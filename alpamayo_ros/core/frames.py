"""The frames of one camera, sorted by stamp, and which of them belong to the lattice's points."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from alpamayo_ros.core.lattice import PERIODS_KEPT, Point
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, Frame

KEPT_NS = 1_000_000_000  # older frames can be in no tick that may still run
MAX_FRAMES = 128  # whatever their stamps say


@dataclass(frozen=True)
class Choice:
    """The frame of one camera for one lattice point."""

    frame: Frame | None  # None: there is none within the tolerance
    settled: bool  # False: a frame that is still to come may be nearer


class CameraBuffer:
    """Frames of one camera.

    A point's frame is the one nearest to the point's anchor frame, within the tolerance (of two equally near ones the
    earlier), among those later than the frame of the point before, so that no frame belongs to two points. A frame just
    before the anchor frame is taken without waiting for the next one when that, by the shortest of the camera's last
    periods, can't be nearer. So the choice is a function of the stamps in their order, not of the order of arrival.
    """

    def __init__(self, tolerance_ns: int) -> None:
        self._tolerance_ns = tolerance_ns
        self._stamps: list[int] = []
        self._frames: list[Frame] = []
        self._bad: list[int] = []  # stamps of frames that were taken out
        self._settled: dict[int, Frame | None] = {}  # by the stamp of the point's anchor frame, oldest first

    def __len__(self) -> int:
        return len(self._frames)

    def __contains__(self, stamp_ns: int) -> bool:
        at = bisect_left(self._stamps, stamp_ns)
        return self._stamps[at : at + 1] == [stamp_ns] or stamp_ns in self._bad

    @property
    def oldest_ns(self) -> int | None:
        """The oldest stamp held."""
        return self._stamps[0] if self._stamps else None

    @property
    def newest(self) -> Frame | None:
        """The frame with the newest stamp."""
        return self._frames[-1] if self._frames else None

    @property
    def newest_ns(self) -> int | None:
        """Its stamp."""
        return self._stamps[-1] if self._stamps else None

    def at(self, stamp_ns: int) -> Frame | None:
        """The frame of exactly this stamp."""
        at = bisect_left(self._stamps, stamp_ns)
        return self._frames[at] if self._stamps[at : at + 1] == [stamp_ns] else None

    def add(self, frame: Frame) -> list[Frame]:
        """Sort a frame in, of a stamp that is not held. Returns the frames that this pushes out, oldest first."""
        at = bisect_right(self._stamps, frame.stamp_ns)
        if at < len(self._stamps):  # late: choices that it could have been part of are made again
            self.forget_choices(frame.stamp_ns - self._tolerance_ns)
        self._stamps.insert(at, frame.stamp_ns)
        self._frames.insert(at, frame)
        return self._trim(self._stamps[-1] - KEPT_NS)

    def take_out(self, serial: int) -> Frame | None:
        """Take out a frame that turned out bad; None if it is not held (any more)."""
        for at, frame in enumerate(self._frames):
            if frame.serial == serial:
                del self._frames[at], self._stamps[at]
                self._bad.append(frame.stamp_ns)
                self.forget_choices(frame.stamp_ns - self._tolerance_ns)
                return frame
        return None

    def clear(self) -> list[Frame]:
        """Forget all; returns the frames that were held."""
        held = self._frames
        self.__init__(self._tolerance_ns)  # type: ignore[misc]
        return held

    def bad_near(self, stamp_ns: int) -> bool:
        """Whether a frame that was taken out lay within the tolerance of this stamp."""
        return any(abs(bad - stamp_ns) <= self._tolerance_ns for bad in self._bad)

    @property
    def period(self) -> float:
        """Seconds between neighbouring stamps, the median of the last; NaN with fewer than two frames."""
        steps = sorted(b - a for a, b in pairwise(self._stamps[-PERIODS_KEPT - 1 :]))
        return steps[len(steps) // 2] * 1e-9 if steps else math.nan

    def offset_ns(self, stamp_ns: int) -> int | None:
        """From a stamp to the frame nearest to it, however far; None when there is none."""
        nearest = self._nearer(bisect_left(self._stamps, stamp_ns), 0, stamp_ns)
        return None if nearest is None else nearest.stamp_ns - stamp_ns

    def choices(self, points: Sequence[Point], at: int) -> list[Choice]:
        """The frames for point number `at` and the up to three in a row before it, oldest first."""
        first = at
        while first > 0 and at - first < FRAMES_PER_CAMERA - 1 and points[first].index == points[first - 1].index + 1:
            first -= 1
        if not self._stamps:
            return [Choice(None, settled=False)] * (at - first + 1)
        # what an open choice is depends on the one before, so begin at one that is settled
        begin = first
        while begin > 0 and points[begin].stamp_ns not in self._settled:
            begin -= 1
        chosen: list[Choice] = []
        previous: Frame | None = None
        for point in points[begin : at + 1]:
            if point.stamp_ns in self._settled:
                choice = Choice(self._settled[point.stamp_ns], settled=True)
            else:
                choice = self._choose(point.stamp_ns, previous)
                if chosen and not chosen[-1].settled:
                    choice = Choice(choice.frame, settled=False)
                if choice.settled:
                    self._settled[point.stamp_ns] = choice.frame
            chosen.append(choice)
            previous = choice.frame or previous
        return chosen[first - begin :]

    def forget_choices(self, stamp_ns: int) -> None:
        """Choose again for points from this stamp on."""
        for settled_ns in reversed(list(self._settled)):
            if settled_ns < stamp_ns:
                break
            del self._settled[settled_ns]

    def forget_before(self, stamp_ns: int) -> None:
        """Forget the choices for points older than this."""
        for settled_ns in list(self._settled):
            if settled_ns >= stamp_ns:
                break
            del self._settled[settled_ns]

    def _choose(self, stamp_ns: int, previous: Frame | None) -> Choice:
        start = 0 if previous is None else bisect_right(self._stamps, previous.stamp_ns)
        at = bisect_left(self._stamps, stamp_ns, lo=min(start, len(self._stamps)))
        if at > start and self._settles(at - 1, stamp_ns):
            return Choice(self._frames[at - 1], settled=True)
        nearest = self._nearer(at, start, stamp_ns)
        within = nearest is not None and abs(nearest.stamp_ns - stamp_ns) <= self._tolerance_ns
        return Choice(nearest if within else None, settled=at < len(self._stamps))

    def _settles(self, at: int, stamp_ns: int) -> bool:
        """Whether this frame before a stamp is so near that the next, coming as soon as any lately, isn't nearer."""
        ahead = stamp_ns - self._stamps[at]
        recent = self._stamps[max(at - PERIODS_KEPT, 0) : at + 1]
        shortest = min((b - a for a, b in pairwise(recent)), default=0)
        return ahead <= self._tolerance_ns and 2 * ahead <= shortest

    def _nearer(self, at: int, start: int, stamp_ns: int) -> Frame | None:
        """Of the frames number `at` - 1 and `at`, none before `start`, the one nearer to a stamp; else the earlier."""
        near = self._frames[max(at - 1, start) : at + 1]
        return min(near, key=lambda frame: abs(frame.stamp_ns - stamp_ns), default=None)

    def _trim(self, oldest_ns: int) -> list[Frame]:
        gone = max(bisect_left(self._stamps, oldest_ns), len(self._stamps) - MAX_FRAMES)
        pushed_out = self._frames[:gone]
        del self._stamps[:gone], self._frames[:gone]
        self._bad = [bad for bad in self._bad if bad >= oldest_ns]
        return pushed_out


def sizes(frames: Iterable[Frame]) -> list[tuple[int, int]]:
    """The different sizes (height, width) of frames that know theirs."""
    return list(dict.fromkeys((frame.height, frame.width) for frame in frames if frame.height and frame.width))
