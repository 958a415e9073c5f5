"""The vehicle's poses, sorted by stamp, and its history in the frame of t0."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpamayo_ros.core.jump import JumpFinder, norm_of
from alpamayo_ros.core.rotation import matrix_from_quaternion, slerp
from alpamayo_ros.core.types import HISTORY_LENGTH, STEP_NS, Array, EgoPose, SkipReason

HISTORY_NS = (HISTORY_LENGTH - 1) * STEP_NS
KEPT_NS = 3_000_000_000  # one history length before the oldest t0 that may still run
MAX_POSES = 4096  # whatever their stamps say

STANDSTILL_SPEED = 0.1  # m/s
STANDSTILL_DISTANCE = 0.05  # m
STANDSTILL_SPAN_NS = STEP_NS  # without a twist, standing still must have been seen for this long

SPEED_WINDOW_NS = 500_000_000  # over which speed of poses and twist are compared


@dataclass(frozen=True, eq=False)
class EgoHistory:
    """What an Observation needs of the odometry."""

    xyz: Array  # [16, 3] m in ego
    rotation: Array  # [16, 3, 3]
    pose: EgoPose  # at t0
    used: frozenset[int]  # stamps of the poses it was made from
    padded: int  # how many of the oldest the first pose stands for


@dataclass(frozen=True)
class NoHistory:
    """Why there is no history at t0: each reason with its numbers."""

    reasons: Mapping[SkipReason, Mapping[str, Any]]


class EgoBuffer:
    """Poses of base_link in the odometry's frame. Orientations are unit quaternions, all numbers finite."""

    def __init__(self, max_gap_ns: int, max_jump: float, standstill_padding: bool) -> None:
        self._max_gap_ns = max_gap_ns
        self._max_jump = max_jump
        self._jumps = JumpFinder(max_jump)
        self._standstill_padding = standstill_padding
        self._stamps: list[int] = []
        self._poses: list[EgoPose] = []
        self.jump: Mapping[str, Any] | None = None  # numbers of the last jump
        self.jump_ns: int | None = None  # stamp of the first pose after it

    def __len__(self) -> int:
        return len(self._poses)

    def __contains__(self, stamp_ns: int) -> bool:
        at = bisect_left(self._stamps, stamp_ns)
        return self._stamps[at : at + 1] == [stamp_ns]

    @property
    def newest(self) -> EgoPose | None:
        """The pose with the newest stamp."""
        return self._poses[-1] if self._poses else None

    @property
    def newest_ns(self) -> int | None:
        """Its stamp."""
        return self._stamps[-1] if self._stamps else None

    def is_before_jump(self, stamp_ns: int) -> bool:
        """Whether a pose of this stamp belongs to the history that a jump has ended."""
        return self.jump_ns is not None and stamp_ns < self.jump_ns

    def add(self, pose: EgoPose) -> tuple[list[int], list[int]]:
        """Sort a pose in, of a stamp that is not held.

        Returns:
            The stamps of the poses that leave because they are old, and of those that a jump drops.
        """
        jumped: list[int] = []
        at = bisect_left(self._stamps, pose.stamp_ns)
        jump = self._jumps.find(self._poses[-1], pose) if at and at == len(self._stamps) else None
        if jump is not None:
            self.jump, self.jump_ns, jumped = jump, pose.stamp_ns, self._stamps
            self._stamps, self._poses, at = [], [], 0
        self._stamps.insert(at, pose.stamp_ns)
        self._poses.insert(at, pose)
        old = max(bisect_left(self._stamps, self._stamps[-1] - KEPT_NS), len(self._stamps) - MAX_POSES)
        left = self._stamps[:old]
        del self._stamps[:old], self._poses[:old]
        return left, jumped

    def clear(self) -> list[int]:
        """Forget all; returns the stamps that were held."""
        held = self._stamps
        self.__init__(self._max_gap_ns, self._max_jump, self._standstill_padding)  # type: ignore[misc]
        return held

    def interpolated(self, stamp_ns: int) -> EgoPose | None:
        """The pose at a time between two held ones; None outside."""
        if not self._stamps or not self._stamps[0] <= stamp_ns <= self._stamps[-1]:
            return None
        after = bisect_left(self._stamps, stamp_ns)
        before = after if self._stamps[after] == stamp_ns else after - 1
        position, orientation = self._interpolate([stamp_ns], [before], [after])
        return self._pose_at(stamp_ns, before, after, position[0], orientation[0])

    def history(self, t0_ns: int) -> EgoHistory | NoHistory:
        """The poses at t0-1.5 s .. t0 in the frame of the one at t0.

        Positions are interpolated linearly, orientations by slerp: exact for a constant velocity in the odometry's
        frame and a constant rate of turn; otherwise off by at most a * gap^2 / 8 (a: acceleration, centripetal too).
        """
        wanted = [t0_ns - k * STEP_NS for k in reversed(range(HISTORY_LENGTH))]
        reasons = self._missing(wanted)
        if reasons:
            return NoHistory(reasons)
        first = self._stamps[0]
        padded = bisect_left(wanted, first)
        stamps = [max(stamp, first) for stamp in wanted]
        after = [bisect_left(self._stamps, stamp) for stamp in stamps]
        before = [i if self._stamps[i] == stamp else i - 1 for i, stamp in zip(after, stamps, strict=True)]
        position, orientation = self._interpolate(stamps, before, after)
        world_from_vehicle = matrix_from_quaternion(orientation)
        vehicle_from_world = world_from_vehicle[-1].T
        rotation = vehicle_from_world @ world_from_vehicle
        rotation[-1] = np.eye(3)
        return EgoHistory(
            xyz=(position - position[-1]) @ vehicle_from_world.T,
            rotation=rotation,
            pose=self._pose_at(t0_ns, before[-1], after[-1], position[-1], orientation[-1]),
            used=frozenset(self._stamps[i] for i in {*before, *after}),
            padded=padded,
        )

    def speed_error(self) -> float:
        """How far the twist is from the velocity that the newest poses show, m/s; NaN when it can't be told."""
        if len(self._stamps) < 2:
            return math.nan
        at = bisect_left(self._stamps, self._stamps[-1] - SPEED_WINDOW_NS)
        first, last = self._poses[at], self._poses[-1]
        middle = self._poses[(at + len(self._poses) - 1) // 2]
        span = (last.stamp_ns - first.stamp_ns) * 1e-9
        if middle.linear_velocity is None or span < 0.1:
            return math.nan
        moved = matrix_from_quaternion(middle.orientation).T @ (last.position - first.position)
        return float(np.linalg.norm(moved / span - middle.linear_velocity))

    def speed(self) -> float:
        """How fast it moves now, m/s, by the twist or the newest poses, whichever says more; NaN without a pose."""
        if not self._poses:
            return math.nan
        at = bisect_left(self._stamps, self._stamps[-1] - SPEED_WINDOW_NS)
        first, last = self._poses[at], self._poses[-1]
        span = max((last.stamp_ns - first.stamp_ns) * 1e-9, STEP_NS * 1e-9)
        return max(norm_of(last.linear_velocity), math.dist(first.position, last.position) / span)

    def _missing(self, wanted: Sequence[int]) -> dict[SkipReason, Mapping[str, Any]]:
        """Why the stamps can't be interpolated."""
        t0_ns, stamps = wanted[-1], self._stamps
        newest = stamps[-1] if stamps else None
        if newest is None or newest < t0_ns or stamps[0] > t0_ns:
            reasons = self._after_jump(wanted)
            if newest is not None and newest < t0_ns:
                behind = round((t0_ns - newest) * 1e-9, 6)
                reasons[SkipReason.ODOMETRY_GAP] = {"behind_t0_s": behind}
            else:
                short = None if newest is None else round((stamps[0] - t0_ns) * 1e-9, 6)
                reasons[SkipReason.EGO_HISTORY_SHORT] = {"first_pose_after_t0_s": short}
            return reasons
        reasons = {}
        padded = stamps[0] > wanted[0]
        if padded and not (self._standstill_padding and self._stands_until(t0_ns)):
            reasons = self._after_jump(wanted)
            length = round((t0_ns - stamps[0]) * 1e-9, 6)
            reasons[SkipReason.EGO_HISTORY_SHORT] = {"length_s": length, "needed_s": HISTORY_NS * 1e-9}
        gap = max((self.gap_around(stamp) for stamp in wanted if stamp >= stamps[0]), default=0)
        if gap > self._max_gap_ns:
            numbers = {"gap_s": round(gap * 1e-9, 6), "max_odometry_gap": self._max_gap_ns * 1e-9}
            reasons[SkipReason.ODOMETRY_GAP] = numbers
        return reasons

    def _after_jump(self, wanted: Sequence[int]) -> dict[SkipReason, Mapping[str, Any]]:
        if self.jump is not None and self.is_before_jump(wanted[0]):
            return {SkipReason.ODOMETRY_JUMP: self.jump}
        return {}

    def gap_around(self, stamp_ns: int) -> int:
        """How far apart the poses are that are around a stamp between the first and the last, ns."""
        at = bisect_left(self._stamps, stamp_ns)
        return 0 if self._stamps[at] == stamp_ns else self._stamps[at] - self._stamps[at - 1]

    def _stands_until(self, t0_ns: int) -> bool:
        """Whether the vehicle has stood still from the first pose to t0, as far as can be seen."""
        poses = self._poses[: bisect_left(self._stamps, t0_ns) + 1]
        first = poses[0]
        if any(math.dist(pose.position, first.position) > STANDSTILL_DISTANCE for pose in poses):
            return False
        speeds = [float(np.linalg.norm(p.linear_velocity)) for p in poses if p.linear_velocity is not None]
        if speeds:
            return max(speeds) <= STANDSTILL_SPEED
        return t0_ns - first.stamp_ns >= STANDSTILL_SPAN_NS

    def _interpolate(self, stamps: Sequence[int], before: Sequence[int], after: Sequence[int]) -> tuple[Array, Array]:
        """Positions [n, 3] and unit quaternions [n, 4] at stamps between poses."""
        start = np.array([self._stamps[i] for i in before])
        span = np.array([self._stamps[i] for i in after]) - start
        fraction = ((np.array(stamps) - start) / np.maximum(span, 1))[:, None]
        a, b = ([self._poses[i] for i in side] for side in (before, after))
        p0, p1 = (np.array([pose.position for pose in side]) for side in (a, b))
        q0, q1 = (np.array([pose.orientation for pose in side]) for side in (a, b))
        return p0 + fraction * (p1 - p0), slerp(q0, q1, fraction)

    def _pose_at(self, stamp_ns: int, before: int, after: int, position: Array, orientation: Array) -> EgoPose:
        a, b = self._poses[before], self._poses[after]
        fraction = (stamp_ns - a.stamp_ns) / max(b.stamp_ns - a.stamp_ns, 1)
        linear, angular = (
            None if x is None or y is None else x + fraction * (y - x)
            for x, y in ((a.linear_velocity, b.linear_velocity), (a.angular_velocity, b.angular_velocity))
        )
        return EgoPose(stamp_ns, position, orientation, linear, angular)
