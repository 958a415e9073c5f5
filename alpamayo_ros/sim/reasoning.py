"""Which of its reasons the expert driver states: the one that decides, and steadily so."""

from __future__ import annotations

import numpy as np

from alpamayo_ros.core.types import Array
from alpamayo_ros.sim.driver import BEFORE_LINE, CRUISE, Lane, Situation
from alpamayo_ros.sim.path import SPACING, Path
from alpamayo_ros.sim.sentences import Reason
from alpamayo_ros.sim.vehicle import FRONT, VehicleState
from alpamayo_ros.sim.world import Turn, World

HOLD_S = 0.6  # for which another reason has to last before it is stated
OFF_LANE, BACK_IN_LANE = 0.5, 0.25  # m
BEND = 1 / 140  # 1/m, from which a road is said to bend
SLOWER = 0.8  # m/s by which a bend ahead has to be slower
TURN_WITHIN, STRAIGHT_WITHIN = 40.0, 25.0  # m before a junction
URGENT = {Reason.STOP_AT_LINE, Reason.STOP_AT_LIGHT, Reason.STOP_FOR_CAR}  # these are stated at once


class Reasoner:
    """States the reason of the moment; a new one only when it lasts."""

    def __init__(self, world: World, lane: Lane) -> None:
        self._world, self._lane = world, lane
        self._bend = _mean_curvature(world.route)
        self._stated: Reason | None = None
        self._candidate: Reason | None = None
        self._since_s = 0.0

    def state(self, vehicle: VehicleState, along: float, left: float, situation: Situation, dt: float) -> Reason:
        """The reason now, dt s after the last call.

        Args:
            vehicle: how it moves.
            along: m along the route.
            left: m, its offset from the lane's middle.
            situation: as the driver knows it.
            dt: s.
        """
        now = self._reason(vehicle, along, left, situation)
        if self._stated is None or now is self._stated or now in URGENT:
            self._stated, self._candidate = now, None
        elif now is not self._candidate:
            self._candidate, self._since_s = now, 0.0
        else:
            self._since_s += dt
            if self._since_s >= HOLD_S - dt / 2:
                self._stated, self._candidate = now, None
        return self._stated

    def _reason(self, vehicle: VehicleState, along: float, left: float, situation: Situation) -> Reason:
        speed = vehicle.speed
        if abs(left) > (BACK_IN_LANE if self._stated is Reason.RETURN_TO_LANE else OFF_LANE):
            return Reason.RETURN_TO_LANE
        line = _line_reason(speed, along, situation)
        car = _car_reason(speed, along, situation)
        if car is Reason.STOP_FOR_CAR or line is None:
            line = car if car is not None else line
        if line is not None:
            return line
        return self._junction_reason(along) or self._road_reason(speed, along)

    def _junction_reason(self, along: float) -> Reason | None:
        junction = self._world.next_junction(along)
        if junction is None:
            return None
        if junction.turn is Turn.STRAIGHT:
            return Reason.GO_STRAIGHT if junction.begin - along < STRAIGHT_WITHIN else None
        if junction.begin - along > TURN_WITHIN:
            return None
        return Reason.TURN_LEFT if junction.turn is Turn.LEFT else Reason.TURN_RIGHT

    def _road_reason(self, speed: float, along: float) -> Reason:
        here = self._bend[self._lane.at(along + 2.0)]
        reach = self._lane.at(along + 12.0 + 2.0 * speed)
        begin = self._lane.at(along)
        slowest = begin + int(np.argmin(self._lane.speed[begin : reach + 1]))
        while slowest < self._lane.last and self._lane.speed[slowest + 1] < self._lane.speed[slowest]:
            slowest += 1
        bend = self._bend[slowest]
        if abs(here) >= BEND:
            return Reason.FOLLOW_LEFT_BEND if here > 0 else Reason.FOLLOW_RIGHT_BEND
        if self._lane.speed[slowest] < speed - SLOWER and abs(bend) >= BEND:
            return Reason.SLOW_FOR_LEFT_BEND if bend > 0 else Reason.SLOW_FOR_RIGHT_BEND
        return Reason.SPEED_UP if speed < min(CRUISE, self._lane.speed[begin]) - 1.0 else Reason.KEEP


def _line_reason(speed: float, along: float, situation: Situation) -> Reason | None:
    room = situation.stop_line - FRONT - BEFORE_LINE - along
    if room > 8.0 + speed * speed / 2.6:
        return None
    return Reason.STOP_AT_LIGHT if situation.is_light else Reason.STOP_AT_LINE


def _car_reason(speed: float, along: float, situation: Situation) -> Reason | None:
    car = situation.car
    if car is None:
        return None
    gap = car.rear - FRONT - along
    closing = max(speed - car.speed, 0.0)
    if gap > 10.0 + 1.8 * speed + closing * closing / 4.0:
        return None
    if car.speed < 0.5:
        return Reason.STOP_FOR_CAR
    return Reason.SLOW_FOR_CAR if closing > 1.0 else Reason.FOLLOW_CAR


def _mean_curvature(route: Path) -> Array:
    """[N] 1/m, over 10 m: what the eye takes for the bend."""
    window = round(10.0 / SPACING)
    return np.convolve(route.curvature, np.full(window, 1 / window), mode="same")
