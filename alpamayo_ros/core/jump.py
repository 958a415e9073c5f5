"""Steps between poses that no motion explains: a map relocalisation, a second source, a localiser that is lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_quaternion, rotation_vector
from alpamayo_ros.core.types import Array, EgoPose

# A step is too long when it is longer by `max_jump` (in angle by JUMP_ANGLE) than half as much again as the twist, or
# the step before, explains. The step before counts, because some sources send a twist of zeros.
JUMP_ANGLE = 0.35  # rad
JUMP_FACTOR = 1.5
TOP_SPEED = 70.0  # m/s; a faster step explains nothing
TOP_RATE = 3.0  # rad/s

# It leads elsewhere when it ends further than `max_jump` from where each of these leads, give or take what tyres hold
# and what a stamp may be off. A jump aside or back makes no long step.
ACCELERATION = 10.0  # m/s^2
STAMP_ERROR = 0.02  # s
TWIST_ERROR = 1.0  # m/s; one that is further off, of zeros or in another frame, tells nothing where poses do
BASELINE_NS = 200_000_000  # of the way that tells the speed before, at least: over a short one stamps tell nonsense

# A pose that is sent again, because the localiser has no newer one yet, tells nothing for so long. The step after it
# may have begun at any of them: some localisers are slower than their odometry, others late once.
HELD_NS = 250_000_000
STARTS = 10  # that are tried, about, whatever the rate


@dataclass(frozen=True, eq=False)
class Motion:
    """How it went from one pose to another, or goes as far as is told."""

    velocity: Array  # [3] m/s, in base_link at the first of them
    seconds: float = 0.0  # between them; 0: just there

    @classmethod
    def between(cls, first: EgoPose, last: EgoPose) -> Motion:
        """On average."""
        seconds = _seconds(first, last)
        moved = matrix_from_quaternion(first.orientation).T @ (last.position - first.position)
        return cls(moved / seconds, seconds)


@dataclass(frozen=True, eq=False)
class Step:
    """How one was judged."""

    is_jump: bool
    rate: float  # rad/s
    numbers: Mapping[str, float]


class JumpFinder:
    """Is asked about every step between poses, in turn.

    Args:
        max_jump: m that a pose may be off.
    """

    def __init__(self, max_jump: float) -> None:
        self._max_jump = max_jump
        self._recent: deque[EgoPose] = deque()  # since the last jump, as far back as the baseline
        self._before: tuple[EgoPose, EgoPose] | None = None  # its ends, or those before the last jump
        self._rate = 0.0  # rad/s, of the newest step that was no jump
        self._jump: tuple[EgoPose, EgoPose] | None = None  # the newest step's, if that was one
        self._held: list[EgoPose] = []  # the newest, and those before that it repeats

    def find(self, last: EgoPose, pose: EgoPose) -> Mapping[str, Any] | None:
        """The numbers of the step from `last` to `pose` if it is a jump, else None."""
        held = self._held if self._held and self._held[-1] is last else [last]
        if _is_repeated(last, pose) and pose.stamp_ns <= held[0].stamp_ns + HELD_NS:
            held.append(pose)
            self._held = held
            return None
        self._held = [pose]
        for start in (*held[: -1 : 1 + len(held) // STARTS], last):
            step = self._judge(start, last, pose)
            if not step.is_jump:
                if start is not held[0]:  # it stood for a while, or its stamps are late since then
                    self._recent.clear()
                self._jump, self._rate = None, step.rate
                self._note(start, pose)
                return None
        self._recent.clear()
        self._jump = (held[0], pose)
        return step.numbers

    def _judge(self, start: EgoPose, last: EgoPose, pose: EgoPose) -> Step:
        """The step from `start`, which `last` repeats unless it is the same."""
        seconds = _seconds(start, pose)
        distance = math.dist(start.position, pose.position)
        angle = 2 * math.acos(min(abs(float(start.orientation @ pose.orientation)), 1.0))
        speed, rate = self._fastest(start, pose)
        far = distance > self._max_jump + JUMP_FACTOR * speed * seconds
        turned = angle > JUMP_ANGLE + JUMP_FACTOR * rate * seconds
        off = 0.0
        if turned or distance + speed * seconds > self._max_jump:  # else it can't be: sparing nearly all of the work
            step, free = Motion.between(start, pose), _seconds(last, pose)
            off = self._least_off(step, free, start, pose)
            far = (far or off > self._max_jump) and not self._goes_on(step, free)
            turned = turned and not self._turns_on(start, pose)
        numbers = {
            "distance_m": round(distance, 3),
            "off_m": round(off, 3),
            "angle_rad": round(angle, 3),
            "seconds": round(seconds, 6),
            "explained_m": round(JUMP_FACTOR * speed * seconds, 3),
            "explained_rad": round(JUMP_FACTOR * rate * seconds, 3),
        }
        return Step(far or turned, angle / seconds, numbers)

    def _goes_on(self, step: Motion, free: float) -> bool:
        """Whether the step before was a jump that led the same way: the vehicle drives so since then."""
        if self._jump is None:
            return False
        jump = Motion.between(*self._jump)
        return norm_of(jump.velocity) <= TOP_SPEED and _off(step, jump, free) <= self._max_jump

    def _turns_on(self, start: EgoPose, pose: EgoPose) -> bool:
        """Whether the step before was a jump that turned the same way."""
        if self._jump is None:
            return False
        jump = _turn(*self._jump)
        return norm_of(jump) <= TOP_RATE and norm_of(_turn(start, pose) - jump) * _seconds(start, pose) <= JUMP_ANGLE

    def _note(self, start: EgoPose, pose: EgoPose) -> None:
        recent = self._recent
        recent.extend(each for each in (start, pose) if not recent or each.stamp_ns > recent[-1].stamp_ns)
        while len(recent) > 2 and recent[1].stamp_ns <= pose.stamp_ns - BASELINE_NS:
            recent.popleft()
        self._before = (recent[0], pose)

    def _fastest(self, start: EgoPose, pose: EgoPose) -> tuple[float, float]:
        """The highest speed, m/s, and rate, rad/s, that anything tells of."""
        before = self._before
        if before is None and start.linear_velocity is None and pose.linear_velocity is None:
            return TOP_SPEED, TOP_RATE  # nothing says yet how it moves
        shown = 0.0 if before is None else math.dist(before[0].position, before[1].position) / _seconds(*before)
        return (
            max(norm_of(start.linear_velocity), norm_of(pose.linear_velocity), min(shown, TOP_SPEED)),
            max(norm_of(start.angular_velocity), norm_of(pose.angular_velocity), min(self._rate, TOP_RATE)),
        )

    def _least_off(self, step: Motion, free: float, start: EgoPose, pose: EgoPose) -> float:
        """How far it ends from where the best of what is known leads, m, or the first that is good enough."""
        offs = []
        for known in self._known(free, start, pose):
            offs.append(_off(step, known, free))
            if offs[-1] <= self._max_jump:
                break
        return min(offs, default=0.0)

    def _known(self, free: float, start: EgoPose, pose: EgoPose) -> Iterator[Motion]:
        """What tells how it may move now: how it moved before, and the twist at both ends where that goes with it."""
        before = None if self._before is None else Motion.between(*self._before)
        if before is not None:
            yield before
        told = []
        if start.linear_velocity is not None:
            told.append(start.linear_velocity)
        if pose.linear_velocity is not None:
            base_from_odom = matrix_from_quaternion(start.orientation).T
            told.append(base_from_odom @ matrix_from_quaternion(pose.orientation) @ pose.linear_velocity)
            if before is None:  # some tell it in the odometry's frame
                told.append(base_from_odom @ pose.linear_velocity)
        seconds = 0.0 if before is None else before.seconds + free
        # poses over a short way tell too little to say that the twist is wrong: one may repeat the last
        unsure = before is None or before.seconds < 0.99e-9 * BASELINE_NS
        for velocity in told:
            if unsure or before is None or norm_of(velocity - before.velocity) <= TWIST_ERROR + ACCELERATION * seconds:
                yield Motion(velocity)


def _off(step: Motion, known: Motion, free: float) -> float:
    """How far a step ends from where a motion leads, m, beyond what tyres hold in `free` s and a stamp may be off."""
    off = norm_of(step.velocity - known.velocity) * step.seconds
    held = ACCELERATION * free * (free + known.seconds) / 2
    return off - held - STAMP_ERROR * norm_of(known.velocity)


def _turn(first: EgoPose, last: EgoPose) -> Array:
    """[3] rad/s, in base_link."""
    turned = matrix_from_quaternion(first.orientation).T @ matrix_from_quaternion(last.orientation)
    return rotation_vector(turned) / _seconds(first, last)


def _is_repeated(first: EgoPose, pose: EgoPose) -> bool:
    return np.array_equal(first.position, pose.position) and np.array_equal(first.orientation, pose.orientation)


def _seconds(first: EgoPose, last: EgoPose) -> float:
    return (last.stamp_ns - first.stamp_ns) * 1e-9


def norm_of(vector: Array | None) -> float:
    """Of a velocity or rate; 0 where nothing tells it."""
    return 0.0 if vector is None else math.sqrt(float(vector @ vector))
