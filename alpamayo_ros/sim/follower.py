"""Follows planned trajectories as a vehicle's controller does: pure pursuit to steer, the plan's speeds for pedals."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import STEP_NS, Array
from alpamayo_ros.sim.vehicle import VehicleState, steering_for

STEP_S = STEP_NS * 1e-9
REACH_S, SHORTEST_REACH = 0.5, 2.5  # s of driving, and m: how far ahead the point is that it steers for
SPEED_AHEAD_S = 0.4  # s in which it closes a difference in speed
TOO_SHORT = 1.0  # m: a path that leads no further says nothing about steering
VALID_FOR_S = 2.0  # after t0; then it brakes
EMERGENCY_BRAKING = -3.0  # m/s^2


@dataclass(frozen=True, eq=False)
class FollowedPath:
    """A trajectory in the world, with where the vehicle was at its t0."""

    t0_s: float
    xy: Array  # [65, 2] m; the first is the vehicle's place at t0, the rest 0.1 s apart

    @classmethod
    def from_vehicle(cls, t0_s: float, vehicle: VehicleState, points: Array) -> FollowedPath:
        """From points [64, 2 or 3] m in the frame of the vehicle at t0."""
        c, s = math.cos(vehicle.yaw), math.sin(vehicle.yaw)
        place = np.array([vehicle.x, vehicle.y])
        turned = points[:, :2] @ np.array([[c, s], [-s, c]])
        return cls(t0_s, np.concatenate([place[None], place + turned]))


class Follower:
    """Pedals and steering for the newest trajectory that has become known.

    Args:
        latency_s: from a trajectory's t0 until it is followed.
    """

    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._coming: deque[FollowedPath] = deque()
        self._path: FollowedPath | None = None

    def take(self, path: FollowedPath) -> None:
        """A trajectory has been planned; later ones come later."""
        self._coming.append(path)

    def control(self, vehicle: VehicleState, now_s: float) -> tuple[float, float]:
        """Acceleration (m/s^2) and steering (rad) for now. Without a valid trajectory it brakes and holds the wheel."""
        while self._coming and self._coming[0].t0_s + self._latency_s <= now_s + 1e-6:
            self._path = self._coming.popleft()
        path = self._path
        if path is None or now_s > path.t0_s + VALID_FOR_S:
            return EMERGENCY_BRAKING, vehicle.steering
        steps = np.linalg.norm(np.diff(path.xy, axis=0), axis=1)
        at = min(max((now_s - path.t0_s + SPEED_AHEAD_S) / STEP_S - 0.5, 0.0), len(steps) - 1.0)
        wanted = float(np.interp(at, np.arange(len(steps)), steps)) / STEP_S
        acceleration = (wanted - vehicle.speed) / SPEED_AHEAD_S
        return acceleration, self._steering(path, steps, vehicle)

    def _steering(self, path: FollowedPath, steps: Array, vehicle: VehicleState) -> float:
        """Pure pursuit (Coulter, CMU-RI-TR-92-01): the arc through a point of the path ahead."""
        along = np.concatenate([[0.0], np.cumsum(steps)])
        offset = path.xy - [vehicle.x, vehicle.y]
        nearest = int(np.argmin(np.linalg.norm(offset, axis=1)))
        reach = along[nearest] + max(REACH_S * vehicle.speed, SHORTEST_REACH)
        dx, dy = (float(np.interp(reach, along, offset[:, axis])) for axis in (0, 1))
        c, s = math.cos(vehicle.yaw), math.sin(vehicle.yaw)
        x, y = c * dx + s * dy, c * dy - s * dx
        if along[-1] - along[nearest] < TOO_SHORT or x <= 0:
            return vehicle.steering
        return steering_for(2 * y / (x * x + y * y))
