"""What the expert driver would do before a junction if its route left by another way out. Deterministic by seed.

On its own drives the speed before a junction tells where the route goes, and a learner need not read what the
navigation says. Here the same pictures and the same speed come with each way out that there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.sim.car_plans import CAR_WIDTH
from alpamayo_ros.sim.driver import Lane, Situation, plan
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.reasoning import Reasoner
from alpamayo_ros.sim.route_text import navigation_text
from alpamayo_ros.sim.sentences import Reason
from alpamayo_ros.sim.world import LANE_WIDTH, Junction, Turn

WIDEST = (
    LANE_WIDTH - CAR_WIDTH
) / 2  # m off the lane's middle; a plan that gets further comes too fast for its way out


@dataclass(frozen=True, eq=False)
class Advice:
    """What the expert would do and say on another route."""

    plan: Array  # [64, 3] x, y (m in the world) and yaw (rad), 0.1 to 6.4 s on
    reason: Reason
    navigation: str


class OtherRoutes:
    """The ways out of the next junction that the route doesn't take, one of them for a share of ticks."""

    def __init__(self, seed: int, share: float) -> None:
        """Get ready.

        Args:
            seed: of the drive.
            share: of the ticks before junctions.

        Raises:
            ConfigurationError: a share that is none.
        """
        if not 0 <= share <= 1:
            raise ConfigurationError(f"other routes for {share} of the ticks before junctions, expected 0 to 1")
        self._rng = np.random.default_rng([seed, 1_000_003 * 5])
        self._share = share
        self._junction: Junction | None = None
        self._routes: list[_OtherRoute] = []

    def look(self, journey: Journey, dt: float) -> Advice | None:
        """A tick has come, dt s after the last; the advice by which it is to be learned instead of the driver's own."""
        drawn, choice = self._rng.random(2)  # in each tick, so that none depends on those before
        junction = journey.world.next_junction(journey.along)
        if junction is None or journey.navigation is None or journey.along >= junction.begin:
            return None
        if junction is not self._junction:
            others = [turn for turn in junction.exits if turn is not junction.turn]
            self._junction = junction
            self._routes = [_OtherRoute(journey, junction, turn) for turn in others]
        for route in self._routes:
            route.look(journey, dt)
        return self._routes[int(choice * len(self._routes))].advice(journey) if drawn < self._share else None


class _OtherRoute:
    """By one way out."""

    def __init__(self, journey: Journey, junction: Junction, turn: Turn) -> None:
        self._junction = junction
        self._world = journey.world.leaving_by(junction, turn)
        self._lane = Lane(self._world.route)
        self._reasoner = Reasoner(self._world, self._lane)
        self._situation = Situation()
        self._reason = journey.reason

    def look(self, journey: Journey, dt: float) -> None:
        """Know the reason, which depends on those before."""
        self._situation = self._before_junction(journey.situation)
        self._reason = self._reasoner.state(journey.vehicle, journey.along, journey.left, self._situation, dt)

    def advice(self, journey: Journey) -> Advice | None:
        """None where another car is on this way out, or where the vehicle is too fast for it."""
        if self._is_taken(journey):
            return None
        poses = plan(self._lane, journey.vehicle, journey.along, self._situation)
        if self._off(poses[:, :2]).max() > max(WIDEST, abs(journey.left)):
            return None
        navigation = navigation_text(self._world, journey.along)
        return Advice(poses, self._reason, navigation) if navigation is not None else None

    def _before_junction(self, situation: Situation) -> Situation:
        """Without what waits beyond the junction, where the route goes."""
        if situation.stop_line > self._junction.end:
            situation = replace(situation, stop_line=math.inf, is_light=False, stood_s=0.0)
        beyond = situation.car is not None and situation.car.rear > self._junction.end
        return replace(situation, car=None) if beyond else situation

    def _is_taken(self, journey: Journey) -> bool:
        """Whether a car that has left the route did so by this way out: the driver would have to mind it."""
        gone = [car for car in journey.traffic.cars if car.plan.on_route_until and math.isnan(car.route_along)]
        places = np.array([car.plan.path.points(car.along) for car in gone]).reshape(-1, 2)
        return bool((self._off(places) < LANE_WIDTH / 2).any())

    def _off(self, places: Array) -> Array:
        """[N] m of places [N, 2] from this route's lane's middle."""
        return np.linalg.norm(self._world.route.xy - places[:, None], axis=-1).min(axis=1)
