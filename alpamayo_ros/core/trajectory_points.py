"""A prediction as what consumers get: poses in the output frame with their times, speeds, accelerations, curvatures.

The node and the evaluator's result bags both take it from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_quaternion, quaternion_from_matrix
from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, EgoPose

# Point i is at t0 + (i+1) * 0.1 s, exactly.
TIMES_FROM_START_NS = tuple((i + 1) * STEP_NS for i in range(HORIZON))


@dataclass(frozen=True, eq=False)
class TrajectoryPoints:
    """64 points of one trajectory."""

    position: Array  # [64, 3] m
    orientation: Array  # [64, 4] unit quaternions x, y, z, w
    speed: Array  # [64] m/s along the vehicle's x axis
    acceleration: Array  # [64] m/s^2, held until the next point
    curvature: Array  # [64] 1/m, held until the next point
    initial_speed: float  # m/s at t0

    def rows(self) -> Iterator[tuple[int, Array, Array, float, float, float]]:
        """Point by point: time from t0 in ns, position, orientation, speed, acceleration, curvature."""
        scalars = (self.speed.tolist(), self.acceleration.tolist(), self.curvature.tolist())
        return zip(TIMES_FROM_START_NS, self.position, self.orientation, *scalars, strict=True)


def trajectory_points(
    xyz: Array, rotation: Array, actions: Array, speed: Array, pose: EgoPose | None
) -> TrajectoryPoints:
    """One sample's points.

    Args:
        xyz: [64, 3] m in ego; index 0 is t0 + 0.1 s.
        rotation: [64, 3, 3] ego <- vehicle.
        actions: [64, 2] acceleration and curvature. Action i is held from t0 + i * 0.1 s on, so it is point i-1's; the
            last point keeps the last action.
        speed: [65] m/s from t0 on.
        pose: of base_link at t0 in the odometry's frame, for points in that frame; None leaves them in ego.
    """
    if pose is not None:
        world_from_ego = matrix_from_quaternion(pose.orientation)
        xyz = xyz @ world_from_ego.T + pose.position
        rotation = world_from_ego @ rotation
    held = np.concatenate([actions[1:], actions[-1:]])
    return TrajectoryPoints(
        position=xyz,
        orientation=quaternion_from_matrix(rotation),
        speed=speed[1:],
        acceleration=held[:, 0],
        curvature=held[:, 1],
        initial_speed=float(speed[0]),
    )
