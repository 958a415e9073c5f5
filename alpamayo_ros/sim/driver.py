"""The expert driver: keeps the lane, the speed that bends allow, its distance to a car ahead, and stops at lines.

It steers by the lane's curvature ahead and by how far off and turned it is: a second-order return to the lane's middle
with critical damping in distance. Behind cars it keeps to the Intelligent Driver Model in its improved form (Treiber
and Kesting, Traffic Flow Dynamics, 11.3). It plans with what can be seen: a car ahead goes on braking as it does, less
and less, since its lights show that; that it speeds up shows nowhere; and a light stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from alpamayo_ros.core.types import HORIZON, Array
from alpamayo_ros.sim.path import SPACING, Path, fastest_speeds
from alpamayo_ros.sim.traffic import CarAhead
from alpamayo_ros.sim.vehicle import FRONT, VehicleState, steering_for, step

CRUISE = 11.0  # m/s
SIDEWAYS, BRAKING = 2.0, 1.5  # m/s^2 that it allows itself
SPEEDING_UP, HARDEST = 1.3, -5.0  # m/s^2
REACTION = 0.7  # s, in which it closes a difference in speed
HEADWAY, STANDING_GAP = 1.4, 4.0  # s and m to a car ahead
COMFORTABLE = 1.6  # m/s^2 that it counts on behind cars
CHANGE_FADES_S = 1.0  # in which a car ahead is expected to brake but a third as much
STOP_SIGN_WAIT = 1.5  # s
STANDING = 0.05  # m/s
BEFORE_LINE = 0.8  # m from the front bumper to a stop line
STEP = 0.05  # s, of its planning
STEPS_PER_POINT = 2


class Lane:
    """The route as the driver uses it: plain lists, since single numbers are looked up thousands of times a second."""

    def __init__(self, route: Path) -> None:
        self.x, self.y = route.xy[:, 0].tolist(), route.xy[:, 1].tolist()
        self.heading, self.curvature = route.heading.tolist(), route.curvature.tolist()
        self.speed = fastest_speeds(route, CRUISE, SIDEWAYS, BRAKING).tolist()
        self.last = len(self.x) - 2

    def at(self, along: float) -> int:
        """The number of the point at or before that distance."""
        return min(max(int(along / SPACING), 0), self.last)

    def locate(self, state: VehicleState, near: float) -> tuple[float, float, float]:
        """Distance along the route (m), offset to the left (m) and angle to it (rad), from a guess of the distance."""
        along, left = near, 0.0
        for _ in range(2):
            i = self.at(along)
            dx, dy = state.x - self.x[i], state.y - self.y[i]
            c, s = math.cos(self.heading[i]), math.sin(self.heading[i])
            left = dy * c - dx * s
            along = i * SPACING + (dx * c + dy * s) / max(1 - self.curvature[i] * left, 0.3)
        i = self.at(along)
        angle = state.yaw - self.heading[i] - self.curvature[i] * (along - i * SPACING)
        return along, left, math.remainder(angle, math.tau)


@dataclass(frozen=True)
class Situation:
    """What the driver has to mind."""

    stop_line: float = math.inf  # m along the route, of a line that it has to stop at
    is_light: bool = False  # the line is a red light's, and not a sign's
    car: CarAhead | None = None
    stood_s: float = 0.0  # for how long it has stood at the line


def decide(lane: Lane, state: VehicleState, near: float, situation: Situation) -> tuple[float, float, float]:
    """Acceleration (m/s^2) and steering (rad) wanted, and the distance along the route, from a guess of that."""
    along, left, angle = lane.locate(state, near)
    speed = state.speed
    reach = min(max(0.8 * speed, 4.0), 9.0)  # m in which an offset shrinks to a third
    bend = lane.curvature[lane.at(along + 0.25 * speed)]
    back = -min(max(left, -1.5), 1.5) / reach**2 - 2 * math.sin(angle) / reach
    steering = steering_for(min(max(bend + back, -0.22), 0.22))

    allowed = lane.speed[lane.at(along + REACTION * speed)]
    if situation.stop_line < math.inf and (situation.is_light or situation.stood_s < STOP_SIGN_WAIT):
        room = situation.stop_line - BEFORE_LINE - FRONT - along - REACTION * speed
        allowed = min(allowed, math.sqrt(2 * BRAKING * max(room, 0.0)))
    wanted = (allowed - speed) / REACTION
    if allowed < 0.3 and speed < 0.3:
        wanted = -1.5  # come to a stand rather than creep
    car = situation.car
    if car is not None:
        gap = max(car.rear - along - FRONT, 0.1)
        closing = speed * (speed - car.speed) / (2 * math.sqrt(SPEEDING_UP * COMFORTABLE))
        desired = STANDING_GAP + max(speed * HEADWAY + closing, 0.0)
        wanted = min(wanted, SPEEDING_UP * (1 - (desired / gap) ** 2))
    return min(max(wanted, HARDEST), SPEEDING_UP), steering, along


def watch_line(situation: Situation, state: VehicleState, along: float, dt: float) -> Situation:
    """The situation dt s later as far as standing at a stop line goes."""
    at_line = situation.stop_line - FRONT - along < BEFORE_LINE + 1.5
    stood = situation.stood_s + dt if at_line and state.speed < STANDING else situation.stood_s
    return situation if stood == situation.stood_s else replace(situation, stood_s=stood)


def plan(lane: Lane, state: VehicleState, near: float, situation: Situation) -> Array:
    """Where the driver means to be: x, y (m in the world) and yaw (rad) [64, 3], 0.1 to 6.4 s from now."""
    poses = np.empty((HORIZON, 3))
    car = situation.car
    for number in range(HORIZON * STEPS_PER_POINT):
        acceleration, steering, near = decide(lane, state, near, situation)
        state = step(state, acceleration, steering, STEP)
        if situation.stop_line < math.inf:
            situation = watch_line(situation, state, near, STEP)
        if car is not None:
            car = _goes_on(car)
            situation = replace(situation, car=car)
        if number % STEPS_PER_POINT == STEPS_PER_POINT - 1:
            poses[number // STEPS_PER_POINT] = state.x, state.y, state.yaw
    return poses


def _goes_on(car: CarAhead) -> CarAhead:
    """A car ahead one step later, with a braking that fades, until it stands.

    Nobody sees how long it will brake; that it goes on for all of a plan would be a guess, and a wild one. In the 0.3 s
    that pictures reach back, a car that speeds up by 1.5 m/s^2 is 0.07 m off from one that doesn't: no pixel 10 m away.
    """
    braking = min(car.acceleration, 0.0)
    speed = max(car.speed + braking * STEP, 0.0)
    return CarAhead(car.rear + (car.speed + speed) / 2 * STEP, speed, braking * (1 - STEP / CHANGE_FADES_S))
