"""A vehicle on its way through a world: time goes on step by step."""

from __future__ import annotations

import math
from dataclasses import replace

from alpamayo_ros.core.types import Array
from alpamayo_ros.sim.driver import STOP_SIGN_WAIT, Lane, Situation, decide, plan, watch_line
from alpamayo_ros.sim.reasoning import Reasoner
from alpamayo_ros.sim.route_text import navigation_text
from alpamayo_ros.sim.sentences import Reason
from alpamayo_ros.sim.traffic import CarAhead, Traffic
from alpamayo_ros.sim.vehicle import FRONT, VehicleState, step
from alpamayo_ros.sim.world import Control, World

SEEN_AROUND, SEEN_AHEAD, SEEN_WITHIN = 30.0, 80.0, math.radians(14.0)  # m, m and rad: the second is the tele camera's
STEP_S = 0.02  # of the world; odometry has the same rate
OVER_THE_LINE = 1.0  # m that the front bumper may stand over a stop line


class Journey:
    """The vehicle, the traffic around it, and the expert driver, who may drive or only watch.

    It starts in the middle of the lane.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.lane = Lane(world.route)
        self.traffic = Traffic(world)
        x, y = world.route.xy[0]
        self.vehicle = VehicleState(float(x), float(y), float(world.route.heading[0]), world.start_speed, 0.0, 0.0)
        self.along, self.left = 0.0, 0.0  # m along the route, and to the left of the lane's middle
        self.time_s = 0.0
        self.reason = Reason.KEEP
        self._reasoner = Reasoner(world, self.lane)
        self._line: int | None = None  # the junction whose line it minds
        self._stood_s = 0.0
        self._passed = -1  # the last junction whose sign it has obeyed
        self._situation = Situation()
        self.traffic.step(self.along, STEP_S)
        self._look()

    @property
    def situation(self) -> Situation:
        """What the driver has to mind now."""
        return self._situation

    @property
    def has_arrived(self) -> bool:
        """Whether the route's destination is reached."""
        return self.along >= self.world.length

    def drive(self, push: tuple[float, float] = (0.0, 0.0)) -> None:
        """One step by the expert driver; `push` is added to its acceleration (m/s^2) and steering (rad)."""
        acceleration, steering, _ = decide(self.lane, self.vehicle, self.along, self._situation)
        self.move(acceleration + push[0], steering + push[1])

    def move(self, acceleration: float, steering: float) -> None:
        """One step with pedals (m/s^2) and steering (rad) from elsewhere."""
        self.vehicle = step(self.vehicle, acceleration, steering, STEP_S)
        self.time_s += STEP_S
        self.along, self.left, _ = self.lane.locate(self.vehicle, self.along)
        self.traffic.step(self.along, STEP_S)
        self._stood_s = watch_line(self._situation, self.vehicle, self.along, STEP_S).stood_s
        self._look()

    def plan(self) -> Array:
        """The expert's plan from here: x, y (m in the world) and yaw (rad) [64, 3], 0.1 to 6.4 s from now."""
        return plan(self.lane, self.vehicle, self.along, self._situation)

    @property
    def navigation(self) -> str | None:
        """What a navigation system says here."""
        return navigation_text(self.world, self.along)

    def _look(self) -> None:
        """Find what the driver has to mind, and state the reason."""
        if self._line is not None and self._stood_s >= STOP_SIGN_WAIT and not self._situation.is_light:
            self._passed = self._line
        line = self._next_line()
        if line != self._line:
            self._line, self._stood_s = line, 0.0
        car = self.traffic.ahead(self.along)
        situation = Situation(car=car if car is not None and self._sees(car) else None)
        if line is not None:
            junction = self.world.junctions[line]
            situation = replace(
                situation,
                stop_line=junction.begin,
                is_light=junction.control is not Control.STOP_SIGN,
                stood_s=self._stood_s,
            )
        self._situation = situation
        self.reason = self._reasoner.state(self.vehicle, self.along, self.left, situation, STEP_S)

    def _sees(self, car: CarAhead) -> bool:
        """Whether a car is large enough in one of the cameras' pictures: near, or ahead where the tele camera looks."""
        place = self.lane.at(car.rear)
        dx, dy = self.lane.x[place] - self.vehicle.x, self.lane.y[place] - self.vehicle.y
        distance = math.hypot(dx, dy)
        if distance < SEEN_AROUND:
            return True
        angle = math.remainder(math.atan2(dy, dx) - self.vehicle.yaw, math.tau)
        return distance < SEEN_AHEAD and abs(angle) < SEEN_WITHIN

    def _next_line(self) -> int | None:
        """The junction ahead with a line that has to be stopped at, by its number."""
        for number, junction in enumerate(self.world.junctions):
            if number > self._passed and self.along + FRONT < junction.begin + OVER_THE_LINE:
                stops = junction.control is Control.STOP_SIGN or self.traffic.is_red(number)
                return number if stops else None
        return None
