"""The vehicle: a kinematic bicycle with limits on what its pedals and its steering can do."""

from __future__ import annotations

import math
from typing import NamedTuple

WHEELBASE = 2.8  # m
LENGTH, WIDTH, REAR_OVERHANG = 4.6, 1.85, 0.9  # m of its body; the origin is the rear axle
FRONT = LENGTH - REAR_OVERHANG  # m from the rear axle to the front bumper
STRONGEST_BRAKING, STRONGEST_ACCELERATION = -6.0, 2.5  # m/s^2
LARGEST_JERK = 6.0  # m/s^3
LARGEST_STEERING, FASTEST_STEERING = 0.6, 0.7  # rad and rad/s, of the front wheels


class VehicleState(NamedTuple):
    """Where the rear axle is in the world, and how the vehicle moves. A tuple: there are many."""

    x: float  # m
    y: float  # m
    yaw: float  # rad
    speed: float  # m/s
    acceleration: float  # m/s^2
    steering: float  # rad, of the front wheels, positive to the left

    @property
    def yaw_rate(self) -> float:
        """rad/s."""
        return self.speed * math.tan(self.steering) / WHEELBASE


def step(state: VehicleState, acceleration: float, steering: float, dt: float) -> VehicleState:
    """The state `dt` s later, with pedals and steering on their way to what is wanted.

    The kinematic bicycle about its rear axle (Rajamani, Vehicle Dynamics and Control, 2.2), with the heading of the
    step's middle. It doesn't reverse.

    Args:
        state: now.
        acceleration: m/s^2 wanted.
        steering: rad wanted.
        dt: s.
    """
    most = LARGEST_JERK * dt
    wanted = min(max(acceleration, STRONGEST_BRAKING), STRONGEST_ACCELERATION)
    reached = state.acceleration + min(max(wanted - state.acceleration, -most), most)
    most = FASTEST_STEERING * dt
    wanted = min(max(steering, -LARGEST_STEERING), LARGEST_STEERING)
    turned = state.steering + min(max(wanted - state.steering, -most), most)
    speed = state.speed + reached * dt
    if speed <= 0.0:
        speed, reached = 0.0, max(reached, 0.0)
    way = (state.speed + speed) / 2 * dt
    turn = way * math.tan(turned) / WHEELBASE
    middle = state.yaw + turn / 2
    x, y = state.x + way * math.cos(middle), state.y + way * math.sin(middle)
    return VehicleState(x, y, state.yaw + turn, speed, reached, turned)


def steering_for(curvature: float) -> float:
    """rad, for a path of that curvature, 1/m."""
    return math.atan(WHEELBASE * curvature)
