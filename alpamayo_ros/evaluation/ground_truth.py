"""What the vehicle did after t0, from the recorded odometry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.jump import JumpFinder
from alpamayo_ros.core.odometry import normalised
from alpamayo_ros.core.rotation import matrix_from_quaternion, quaternion_from_matrix, slerp
from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, EgoPose

Stamps = NDArray[np.int64]

OFFSETS_NS: Stamps = np.arange(HORIZON + 1, dtype=np.int64) * STEP_NS  # from t0 to t0 + 6.4 s


@dataclass(frozen=True, eq=False)
class Future:
    """The driven trajectory after t0, as far as it was recorded without a gap: n of 64 steps."""

    xyz: Array  # [n, 3] m in ego at t0; index 0 is t0 + 0.1 s
    rotation: Array  # [n, 3, 3] ego <- vehicle

    @property
    def steps(self) -> int:
        """n."""
        return len(self.xyz)

    def in_odometry(self, pose: EgoPose) -> tuple[Array, Array]:
        """Positions [n, 3] in m and unit quaternions [n, 4] in the odometry's frame, for the vehicle's pose at t0."""
        world_from_ego = matrix_from_quaternion(pose.orientation)
        position = self.xyz @ world_from_ego.T + pose.position
        return position, quaternion_from_matrix(world_from_ego @ self.rotation)


class GroundTruth:
    """All recorded poses of a drive.

    Poses that are not finite, or have a zero quaternion or stamp, are left out; of those with one stamp the first
    counts. Where the odometry jumps, nothing is known across the jump.

    Args:
        poses: of base_link in the odometry's frame, in any order.
        max_gap: s; poses further apart are not interpolated between.
        max_jump: m that a pose may be off from where its speed leads.
        time_offset: s, added to the stamps.
    """

    def __init__(
        self, poses: Iterable[EgoPose], *, max_gap: float = 0.3, max_jump: float = 1.0, time_offset: float = 0.0
    ) -> None:
        offset_ns = round(time_offset * 1e9)
        by_stamp: dict[int, EgoPose] = {}
        for pose in poses:
            if _is_usable(pose):
                by_stamp.setdefault(pose.stamp_ns + offset_ns, pose)
        ordered = [_clean(by_stamp[stamp], stamp) for stamp in sorted(by_stamp)]
        self._max_gap_ns = round(max_gap * 1e9)
        self._stamps: Stamps = np.array(sorted(by_stamp), dtype=np.int64)
        self._positions = np.array([pose.position for pose in ordered], dtype=float).reshape(-1, 3)
        self._orientations = np.array([pose.orientation for pose in ordered], dtype=float).reshape(-1, 4)
        jumps = _jumps(ordered, max_jump)
        self._stretch = np.concatenate([[0], np.cumsum(jumps)])  # [N] number of the stretch without a jump

    def future(self, t0_ns: int) -> Future:
        """The 0.1 s steps after t0, up to the first that is not recorded. Nothing is extrapolated.

        Positions are interpolated linearly, orientations by slerp, as in the ego history.
        """
        wanted = t0_ns + OFFSETS_NS
        known = int(np.append(self._is_recorded(wanted), False).argmin())
        if known == 0:  # not even t0 itself
            return Future(np.empty((0, 3)), np.empty((0, 3, 3)))
        position, orientation = self._interpolate(wanted[:known])
        world_from_vehicle = matrix_from_quaternion(orientation)
        ego_from_world = world_from_vehicle[0].T
        xyz = (position - position[0]) @ ego_from_world.T
        return Future(xyz[1:], ego_from_world @ world_from_vehicle[1:])

    def _is_recorded(self, wanted: Stamps) -> NDArray[np.bool_]:
        """[n] whether a pose stands at a stamp, or two around it that belong together, and to those before."""
        if not len(self._stamps):
            return np.zeros(len(wanted), dtype=bool)
        right = np.searchsorted(self._stamps, wanted)
        inside = (right < len(self._stamps)) & (wanted >= self._stamps[0])
        right = np.minimum(right, len(self._stamps) - 1)
        left = np.where(self._stamps[right] == wanted, right, np.maximum(right - 1, 0))
        close = self._stamps[right] - self._stamps[left] <= self._max_gap_ns
        together = (self._stretch[right] == self._stretch[left]) & (self._stretch[left] == self._stretch[left[0]])
        return np.asarray(inside & close & together)

    def _interpolate(self, wanted: Stamps) -> tuple[Array, Array]:
        """Positions [n, 3] and unit quaternions [n, 4] at recorded stamps."""
        right = np.searchsorted(self._stamps, wanted)
        left = np.where(self._stamps[right] == wanted, right, right - 1)
        gap = np.maximum(self._stamps[right] - self._stamps[left], 1)
        part = (wanted - self._stamps[left]) / gap
        position = self._positions[left] + part[:, None] * (self._positions[right] - self._positions[left])
        return position, slerp(self._orientations[left], self._orientations[right], part[:, None])


def _is_usable(pose: EgoPose) -> bool:
    finite = np.isfinite(pose.position).all() and np.isfinite(pose.orientation).all()
    return pose.stamp_ns > 0 and bool(finite) and float(np.linalg.norm(pose.orientation)) > 1e-6


def _clean(pose: EgoPose, stamp_ns: int) -> EgoPose:
    """With that stamp, a quaternion of length 1, and no velocity that isn't finite."""
    linear, angular = (
        velocity if velocity is not None and np.isfinite(velocity).all() else None
        for velocity in (pose.linear_velocity, pose.angular_velocity)
    )
    return normalised(EgoPose(stamp_ns, pose.position, pose.orientation, linear, angular))


def _jumps(poses: list[EgoPose], max_jump: float) -> NDArray[np.bool_]:
    """[N - 1] whether a step between poses is a jump, by the node's rule."""
    if len(poses) < 3:
        return np.zeros(max(len(poses) - 1, 0), dtype=bool)
    finder, opening = JumpFinder(max_jump), JumpFinder(max_jump)
    jumps = [finder.find(*ends) is not None for ends in pairwise(poses)]
    opening.find(poses[1], poses[2])  # the first step has none before it: the one after tells how it moves
    jumps[0] = jumps[0] or opening.find(poses[0], poses[1]) is not None
    return np.array(jumps)
