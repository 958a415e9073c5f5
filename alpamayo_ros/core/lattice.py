"""The 10 Hz points that a tick's frames are chosen by, and the set of frames at each.

A point follows the one before by the model's step, plus a part of what its anchor frame was off: a first-order phase
lock. A camera a little slower than 10 Hz draws the lattice along, so that no frame is needed for two points; with a
faster one the deviations cancel, and the points keep 0.1 s on average. For a steady period P of the anchor the lattice
follows with a constant lag of (P - 0.1 s) / GAIN, which must stay within the tolerance: with the default one, down to
9.35 Hz.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from alpamayo_ros.core.frames import CameraBuffer, Choice
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, STEP_NS, Frame

GAIN = 0.15  # of the phase lock
SETTLED_AFTER_NS = 300_000_000  # points this far behind the anchor's newest frame are never moved again
RESTART_AFTER_NS = 1_000_000_000  # an anchor silent for longer starts a new lattice
KEPT_SETS = 2 * FRAMES_PER_CAMERA


@dataclass(frozen=True, eq=False)
class FrameSet:
    """The frames of one lattice point."""

    point_ns: int
    anchor: Choice  # nearest to the point; its frame is None where the anchor has a gap
    others: Mapping[str, Choice] = field(default_factory=dict)  # nearest to the anchor's frame

    @property
    def has_anchor(self) -> bool:
        """Whether the anchor has a frame here."""
        return self.anchor.frame is not None

    def choice(self, camera: str) -> Choice | None:
        """What was chosen of a side camera; None where the anchor has no frame to choose by."""
        return self.others.get(camera)

    @property
    def frames(self) -> list[Frame]:
        """Every frame in it."""
        return [each.frame for each in (self.anchor, *self.others.values()) if each.frame is not None]


class Lattice:
    """Chooses sets of frames from the buffers. What it chose long ago, or handed out in a tick, stays as it is.

    Younger sets are chosen anew at every call, so that they depend on the frames that are there and not on the order
    in which they came.
    """

    def __init__(self, anchor: CameraBuffer, others: Mapping[str, CameraBuffer], tolerance_ns: int) -> None:
        self._anchor = anchor
        self._others = others
        self._tolerance_ns = tolerance_ns
        self._settled: deque[FrameSet] = deque(maxlen=KEPT_SETS)

    def sets(self) -> list[FrameSet]:
        """The latest sets, oldest first: the settled ones, and those that the newest frames give."""
        newest = self._anchor.newest
        if newest is None:
            return []
        sets = list(self._settled)
        while (following := self._following(sets)) is not None:
            sets.append(following)
            if newest.stamp_ns - following.point_ns > SETTLED_AFTER_NS:
                self._settled.append(following)
        return sets[-KEPT_SETS:]

    def settle(self, sets: list[FrameSet]) -> None:
        """Keep these sets as they are, and what lies before them."""
        last = self._settled[-1].point_ns if self._settled else None
        self._settled.extend(each for each in sets if last is None or each.point_ns > last)

    def forget(self, serial: int) -> None:
        """Take a frame that turned out bad out of the settled sets; ticks with it are incomplete from now on."""
        self._settled = deque((_without(each, serial) for each in self._settled), maxlen=KEPT_SETS)

    def reset(self) -> None:
        """Forget everything; the next frame of the anchor sets a new phase."""
        self._settled.clear()

    def _following(self, sets: list[FrameSet]) -> FrameSet | None:
        """The set after these; None when the anchor has no frame for it yet."""
        if not sets:
            oldest = self._anchor.oldest
            return None if oldest is None else self._set_at(oldest.stamp_ns, None, {})
        last = sets[-1]
        off_ns = last.anchor.frame.stamp_ns - last.point_ns if last.anchor.frame is not None else 0
        point_ns = last.point_ns + STEP_NS + round(GAIN * off_ns)
        taken = {name: _latest(sets, name) for name in self._others}
        taken_anchor = max((each.anchor.frame.stamp_ns for each in sets if each.anchor.frame is not None), default=None)
        following = self._anchor.first_after(taken_anchor)
        if following is None:
            return None
        if following.stamp_ns - point_ns > RESTART_AFTER_NS:
            return self._set_at(following.stamp_ns, taken_anchor, taken)
        newest = self._anchor.newest
        if newest is not None and newest.stamp_ns < point_ns - self._tolerance_ns:
            return None
        return self._set_at(point_ns, taken_anchor, taken)

    def _set_at(self, point_ns: int, taken_anchor: int | None, taken: Mapping[str, int | None]) -> FrameSet:
        anchor = self._anchor.choose(point_ns, self._tolerance_ns, taken_anchor)
        if anchor.frame is None:
            return FrameSet(point_ns, anchor)
        target_ns = anchor.frame.stamp_ns
        others = {
            name: buffer.choose(target_ns, self._tolerance_ns, taken[name] if taken else None)
            for name, buffer in self._others.items()
        }
        return FrameSet(point_ns, anchor, others)


def _without(chosen: FrameSet, serial: int) -> FrameSet:
    def clear(choice: Choice) -> Choice:
        bad = choice.frame is not None and choice.frame.serial == serial
        return replace(choice, entry=None, final=True) if bad else choice

    others = {name: clear(choice) for name, choice in chosen.others.items()}
    return replace(chosen, anchor=clear(chosen.anchor), others=others)


def _latest(sets: list[FrameSet], camera: str) -> int | None:
    """The stamp of a camera's newest frame in these sets."""
    for each in reversed(sets):
        choice = each.choice(camera)
        if choice is not None and choice.frame is not None:
            return choice.frame.stamp_ns
    return None
