"""What changes around the vehicle: other cars that follow their plans, and lights that turn green."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpamayo_ros.sim.car_plans import CAR_LENGTH, CarPlan
from alpamayo_ros.sim.path import SPACING
from alpamayo_ros.sim.world import Control, World

SPEEDING_UP, BRAKING = 1.5, 2.0  # m/s^2 of other cars
ON_THE_MOVE = 6.0  # m/s, of a car near a junction that would rather stop
LIGHT_NOTICES = 45.0  # m before its stop line, where a vehicle starts a red light's time


@dataclass
class Car:
    """One car on its way."""

    plan: CarPlan
    along: float  # m along its path
    speed: float
    acceleration: float = 0.0
    going_s: float = -1.0  # how long it has followed its schedule; negative: it hasn't begun

    @property
    def is_braking(self) -> bool:
        """Whether its brake lights are on: also while it stands."""
        return self.acceleration < -0.3 or self.speed < 0.1

    @property
    def route_along(self) -> float:
        """m along the route, of its middle; NaN when it isn't on the route's lane."""
        return self.along + self.plan.route_offset if self.along < self.plan.on_route_until else math.nan

    def step(self, dt: float) -> None:
        """Go on for dt s."""
        wanted = self._wanted_speed()
        change = min(max(wanted - self.speed, -BRAKING * dt), SPEEDING_UP * dt)
        if self.speed + change < 0.02 and wanted == 0.0:
            change = -self.speed
        self.along += (self.speed + change / 2) * dt
        self.speed += change
        self.acceleration = change / dt
        if self.going_s >= 0:
            self.going_s += dt

    def _wanted_speed(self) -> float:
        if self.going_s < 0:
            return self.plan.start_speed
        wanted, left = 0.0, self.going_s
        for seconds, speed in self.plan.schedule:
            wanted = speed
            if left < seconds:
                break
            left -= seconds
        if self.along > self.plan.never_stops_from:
            wanted = max(wanted, ON_THE_MOVE)
        index = min(int(self.along / SPACING), len(self.plan.speeds) - 1)
        return min(wanted, float(self.plan.speeds[index]))


@dataclass(frozen=True)
class CarAhead:
    """The next car on the route's lane."""

    rear: float  # m along the route, of its rear bumper
    speed: float  # m/s
    acceleration: float  # m/s^2


class Traffic:
    """All cars and lights, moved on by what the vehicle does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting = list(world.cars)
        self.cars: list[Car] = []
        self._red_left = {
            number: junction.red_seconds
            for number, junction in enumerate(world.junctions)
            if junction.control is Control.RED_LIGHT
        }

    def step(self, along: float, dt: float) -> None:
        """Go on for dt s, the vehicle being at that distance along the route, m."""
        for plan in [plan for plan in self._waiting if along >= plan.appears_at]:
            self._waiting.remove(plan)
            self.cars.append(Car(plan, plan.start, plan.start_speed))
        for car in self.cars:
            if car.going_s < 0 and along >= car.plan.goes_at:
                car.going_s = 0.0
            car.step(dt)
        self.cars = [car for car in self.cars if car.along < car.plan.path.length - CAR_LENGTH]
        for number in self._red_left:
            if along > self._world.junctions[number].begin - LIGHT_NOTICES:
                self._red_left[number] -= dt

    def is_red(self, junction: int) -> bool:
        """Whether the light of the junction of that number is red."""
        return self._red_left.get(junction, 0.0) > 0

    def ahead(self, along: float) -> CarAhead | None:
        """The next car on the route, seen from that distance along it, m."""
        found: CarAhead | None = None
        for car in self.cars:
            rear = car.route_along - CAR_LENGTH / 2
            if rear > along and (found is None or rear < found.rear):  # NaN is neither
                found = CarAhead(rear, car.speed, car.acceleration)
        return found
