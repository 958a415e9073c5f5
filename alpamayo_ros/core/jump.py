"""Steps between poses that no motion explains: a map relocalisation, a second source, a localiser that is lost."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, eq=False)
class Motion:
    """How it went from one pose to another, or goes as far as is told."""

    velocity: Array  # [3] m/s, in base_link at the first of them
    seconds: float = 0.0  # between them; 0: just there
    turn: Array | None = None  # [3] rad/s, likewise

    @classmethod
    def between(cls, first: EgoPose, last: EgoPose) -> Motion:
        """On average."""
        seconds = _seconds(first, last)
        base_from_odom = matrix_from_quaternion(first.orientation).T
        turned = rotation_vector(base_from_odom @ matrix_from_quaternion(last.orientation))
        return cls(base_from_odom @ (last.position - first.position) / seconds, seconds, turned / seconds)


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
        self._jump: Motion | None = None  # the newest step, if that was one

    def find(self, last: EgoPose, pose: EgoPose) -> Mapping[str, Any] | None:
        """The numbers of the step from `last` to `pose` if it is a jump, else None."""
        seconds = _seconds(last, pose)
        distance = math.dist(last.position, pose.position)
        angle = 2 * math.acos(min(abs(float(last.orientation @ pose.orientation)), 1.0))
        speed, rate = self._fastest(last, pose)
        far = distance > self._max_jump + JUMP_FACTOR * speed * seconds
        turned = angle > JUMP_ANGLE + JUMP_FACTOR * rate * seconds
        if turned or distance + speed * seconds > self._max_jump:  # else it can't be: sparing nearly all of the work
            step = Motion.between(last, pose)
            off = self._least_off(step, last, pose)
            far = far or off > self._max_jump
            if (far and not self._goes_on(step)) or (turned and not self._turns_on(step)):
                self._recent.clear()
                self._jump = step
                return {
                    "distance_m": round(distance, 3),
                    "off_m": round(off, 3),
                    "angle_rad": round(angle, 3),
                    "seconds": round(seconds, 6),
                    "explained_m": round(JUMP_FACTOR * speed * seconds, 3),
                    "explained_rad": round(JUMP_FACTOR * rate * seconds, 3),
                }
        self._jump, self._rate = None, angle / seconds
        self._note(last, pose)
        return None

    def _goes_on(self, step: Motion) -> bool:
        """Whether the step before was a jump that led the same way: the vehicle drives so since then."""
        jump = self._jump
        return jump is not None and _norm(jump.velocity) <= TOP_SPEED and _off(step, jump) <= self._max_jump

    def _turns_on(self, step: Motion) -> bool:
        """Whether the step before was a jump that turned the same way."""
        if self._jump is None or step.turn is None or self._jump.turn is None:
            return False
        change = _norm(step.turn - self._jump.turn) * step.seconds
        return _norm(self._jump.turn) <= TOP_RATE and change <= JUMP_ANGLE

    def _note(self, last: EgoPose, pose: EgoPose) -> None:
        recent = self._recent
        recent.extend((pose,) if recent else (last, pose))
        while len(recent) > 2 and recent[1].stamp_ns <= pose.stamp_ns - BASELINE_NS:
            recent.popleft()
        self._before = (recent[0], pose)

    def _fastest(self, last: EgoPose, pose: EgoPose) -> tuple[float, float]:
        """The highest speed, m/s, and rate, rad/s, that anything tells of."""
        before = self._before
        if before is None and last.linear_velocity is None and pose.linear_velocity is None:
            return TOP_SPEED, TOP_RATE  # nothing says yet how it moves
        shown = 0.0 if before is None else math.dist(before[0].position, before[1].position) / _seconds(*before)
        return (
            max(_norm(last.linear_velocity), _norm(pose.linear_velocity), min(shown, TOP_SPEED)),
            max(_norm(last.angular_velocity), _norm(pose.angular_velocity), min(self._rate, TOP_RATE)),
        )

    def _least_off(self, step: Motion, last: EgoPose, pose: EgoPose) -> float:
        """How far it ends from where the best of what is known leads, m, or the first that is good enough."""
        offs = []
        for known in self._known(last, pose):
            offs.append(_off(step, known))
            if offs[-1] <= self._max_jump:
                break
        return min(offs, default=0.0)

    def _known(self, last: EgoPose, pose: EgoPose) -> Iterator[Motion]:
        """What tells how it may move now: how it moved before, and the twist at both ends where that goes with it."""
        before = None if self._before is None else Motion.between(*self._before)
        if before is not None:
            yield before
        told = []
        if last.linear_velocity is not None:
            told.append(last.linear_velocity)
        if pose.linear_velocity is not None:
            base_from_odom = matrix_from_quaternion(last.orientation).T
            told.append(base_from_odom @ matrix_from_quaternion(pose.orientation) @ pose.linear_velocity)
            if before is None:  # some tell it in the odometry's frame
                told.append(base_from_odom @ pose.linear_velocity)
        seconds = 0.0 if before is None else before.seconds + _seconds(last, pose)
        # poses over a short way tell too little to say that the twist is wrong: one may repeat the last
        unsure = before is None or before.seconds < 0.99e-9 * BASELINE_NS
        for velocity in told:
            if unsure or before is None or _norm(velocity - before.velocity) <= TWIST_ERROR + ACCELERATION * seconds:
                yield Motion(velocity)


def _off(step: Motion, known: Motion) -> float:
    """How far a step ends from where a motion leads, m, beyond what a vehicle and its clock may do."""
    off = _norm(step.velocity - known.velocity) * step.seconds
    held = ACCELERATION * step.seconds * (step.seconds + known.seconds) / 2
    return off - held - STAMP_ERROR * _norm(known.velocity)


def _seconds(first: EgoPose, last: EgoPose) -> float:
    return (last.stamp_ns - first.stamp_ns) * 1e-9


def _norm(vector: Array | None) -> float:
    return 0.0 if vector is None else math.sqrt(float(vector @ vector))
