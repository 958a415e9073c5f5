"""The world: a route of roads and junctions, with what stands and drives there. Deterministic by seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.sim.car_plans import AHEAD_SHARE, FASTEST, CarPlan, plan_cars
from alpamayo_ros.sim.path import SPACING, Path, symmetric_turn

LANE_WIDTH = 3.5  # m; one lane each way, traffic keeps right
IN_LANE = -LANE_WIDTH / 2  # m left of a road's middle: the middle of the right lane
JUNCTION_REACH = 11.0  # m from a junction's middle to where its roads begin
STRAIGHT, CLOTHOID, ARC = (15.0, 50.0), (15.0, 30.0), (15.0, 40.0)  # lengths, m: shortest and longest
RADIUS = (32.0, 110.0)  # m of a road's arcs
APPROACH = 50.0  # m, the straight before a junction
BRANCH = 70.0  # m of the roads that the route doesn't take
LARGEST_HEADING = np.radians(115)  # the route never turns back, and so never crosses itself
RUN_OUT = 160.0  # m of road after the route's end, for the eye and for planning
SHORTEST, LONGEST = 50.0, 10_000.0  # m, of routes
FIRST_HELD_OUT_SEED = 1_000_000  # worlds from here on are for tests and reports: nothing is trained on them
START_SPEED = (3.0, 11.0)  # m/s, slowest and fastest


class Turn(Enum):
    """A way out of a junction; the value is its angle in degrees, roughly."""

    LEFT = 90
    STRAIGHT = 0
    RIGHT = -90


class Control(Enum):
    """What rules at a junction."""

    NONE = "none"
    STOP_SIGN = "stop sign"
    RED_LIGHT = "red light"  # at first
    GREEN_LIGHT = "green light"


@dataclass(frozen=True, eq=False)
class Junction:
    """Where roads meet; the route comes in by one and leaves by another."""

    middle: Array  # [2] m
    heading: float  # rad, of the route when it comes in
    turn: Turn  # the route's
    exits: dict[Turn, float]  # rad, the direction of each road that leaves it
    branches: dict[Turn, Path]  # the middle lines of those that the route doesn't take
    begin: float  # m along the route: where its road ends
    end: float  # and where the next one begins
    control: Control
    red_seconds: float  # for which a red light stays red after the vehicle has come near

    @property
    def has_stop_line(self) -> bool:
        """Whether a line across the lane says where to stop."""
        return self.control is not Control.NONE

    def way(self, turn: Turn) -> Path:
        """The middle of the lane through it by one of its ways out, and on along that road."""
        leaving = self.exits[turn]
        through = _connection(self.middle, self.heading, leaving)
        return Path.joined([through, Path.clothoids(through.xy[-1], leaving, [0.0, BRANCH], [0.0, 0.0])])


@dataclass(frozen=True, eq=False)
class Leg:
    """A road of the route, from one junction to the next."""

    middle: Path  # its middle line
    begin: float  # m along the route
    end: float


@dataclass(frozen=True, eq=False)
class World:
    """All that doesn't change while one drives."""

    seed: int
    length: float  # m along the route, from start to destination
    route: Path  # the middle of the lane to follow, to beyond the destination
    legs: tuple[Leg, ...]
    junctions: tuple[Junction, ...]  # each after the leg of the same number; the last leg has none
    cars: tuple[CarPlan, ...]
    start_speed: float  # m/s, of the vehicle

    @classmethod
    def for_seconds(cls, seed: int, seconds: float, ahead_share: float = AHEAD_SHARE) -> World:
        """The world of that seed along a route that nobody leaves behind in that time; see `random`.

        Raises:
            ConfigurationError: a seed or time that can't be.
        """
        if not 0 < seconds <= LONGEST / FASTEST:
            raise ConfigurationError(
                f"a drive of {seconds} s, expected more than 0 and at most {LONGEST / FASTEST:.0f}"
            )
        return cls.random(seed, max(seconds * FASTEST, SHORTEST), ahead_share)

    @classmethod
    def random(cls, seed: int, length: float, ahead_share: float = AHEAD_SHARE) -> World:
        """The world of that seed along a route of `length` m. A longer route only adds to its end.

        `ahead_share` of its roads have a car ahead, where another than the usual share is wanted.

        Raises:
            ConfigurationError: a seed or length that can't be.
        """
        if seed < 0:
            raise ConfigurationError(f"a world of seed {seed}, expected at least 0")
        if not SHORTEST <= length <= LONGEST:
            raise ConfigurationError(f"a route of {length} m, expected {SHORTEST:g} to {LONGEST:g}")
        start, heading, along = np.array([0.0, -IN_LANE]), 0.0, 0.0
        legs, junctions, cars, pieces = list[Leg](), list[Junction](), list[CarPlan](), list[Path]()
        while True:
            rng = np.random.default_rng([seed, len(legs)])
            middle = _road(rng, start, heading)
            lane = middle.beside(IN_LANE)
            begin, along = along, along + _length(lane)
            legs.append(Leg(middle, begin, along))
            pieces.append(lane)
            junction = _junction(rng, middle, along)
            cars += plan_cars(
                rng, lane, middle.beside(-IN_LANE).backwards(), begin, _way_off(lane, junction), ahead_share
            )
            if along > length + RUN_OUT:
                break
            start, heading, connection = _leave(junction, junction.turn, lane)
            pieces.append(connection)
            along = junction.end
            junctions.append(junction)
        speed = float(np.random.default_rng([seed, 1_000_081]).uniform(*START_SPEED))
        return cls(seed, length, Path.joined(pieces), tuple(legs), tuple(junctions), tuple(cars), speed)

    def next_junction(self, along: float) -> Junction | None:
        """The first junction that isn't left behind at that distance along the route."""
        return next((junction for junction in self.junctions if junction.end > along), None)

    def leaving_by(self, junction: Junction, turn: Turn) -> World:
        """What the driver would know if the route left one of its junctions by another way out, and ended there."""
        number = self.junctions.index(junction)
        points = slice(round(junction.begin / SPACING))
        until = Path(self.route.xy[points], self.route.heading[points], self.route.curvature[points])
        end = junction.begin + _length(_connection(junction.middle, junction.heading, junction.exits[turn]))
        return replace(
            self,
            route=Path.joined([until, junction.way(turn)]),
            legs=self.legs[: number + 1],
            junctions=(*self.junctions[:number], replace(junction, turn=turn, end=end)),
        )


def _road(rng: np.random.Generator, start: Array, heading: float) -> Path:
    """Straights and bends, and a straight before the junction."""
    knots, bends = [0.0], [0.0]

    def extend(by: float, curvature: float) -> None:
        knots.append(knots[-1] + by)
        bends.append(curvature)

    first = heading
    extend(rng.uniform(*STRAIGHT), 0.0)
    for _ in range(rng.integers(0, 3)):
        clothoid, arc, curvature = rng.uniform(*CLOTHOID), rng.uniform(*ARC), 1 / rng.uniform(*RADIUS)
        turn = min(curvature * (clothoid + arc), 1.6)  # each of the two clothoids turns half as much as an arc would
        arc = turn / curvature - clothoid
        side = rng.choice([-1.0, 1.0])
        if abs(heading + side * turn) > LARGEST_HEADING:
            side = -side
        heading += side * turn
        extend(clothoid, side * curvature)
        extend(max(arc, 1.0), side * curvature)
        extend(clothoid, 0.0)
        extend(rng.uniform(*STRAIGHT), 0.0)
    extend(APPROACH, 0.0)
    return Path.clothoids(start, first, knots, bends)


def _junction(rng: np.random.Generator, road: Path, along: float) -> Junction:
    heading = float(road.heading[-1])
    forward = np.array([np.cos(heading), np.sin(heading)])
    middle = road.xy[-1] + JUNCTION_REACH * forward
    angles = {
        turn: heading + np.radians(turn.value + (turn is not Turn.STRAIGHT) * rng.uniform(-10, 10)) for turn in Turn
    }
    possible = [turn for turn in Turn if abs(angles[turn]) <= LARGEST_HEADING]
    turn = possible[rng.integers(len(possible))]
    others = [other for other in Turn if other is not turn]
    kept = [other for other in others if rng.random() < 0.65] or [others[rng.integers(2)]]
    exits = {each: angles[each] for each in Turn if each is turn or each in kept}
    branches = {}
    for other in kept:
        away = np.array([np.cos(angles[other]), np.sin(angles[other])])
        branches[other] = Path.clothoids(middle + JUNCTION_REACH * away, angles[other], [0.0, BRANCH], [0.0, 0.0])
    control = list(Control)[rng.choice(4, p=[0.45, 0.2, 0.2, 0.15])]
    red_seconds = float(rng.uniform(5.0, 9.0))
    width = _length(_connection(middle, heading, angles[turn]))
    return Junction(middle, heading, turn, exits, branches, along, along + width, control, red_seconds)


def _connection(middle: Array, heading: float, leaving: float) -> Path:
    """The way through a junction, from lane to lane."""
    ends = []
    for angle, away in ((heading, -JUNCTION_REACH), (leaving, JUNCTION_REACH)):
        forward, left = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        ends.append(middle + away * forward + IN_LANE * left)
    return symmetric_turn(ends[0], heading, ends[1], leaving - heading)


def _leave(junction: Junction, turn: Turn, lane: Path) -> tuple[Array, float, Path]:
    """Where the road of that way out begins, its direction, and the way there."""
    leaving = junction.exits[turn]
    away = np.array([np.cos(leaving), np.sin(leaving)])
    connection = _connection(junction.middle, junction.heading, leaving)
    return junction.middle + JUNCTION_REACH * away, leaving, connection


def _way_off(lane: Path, junction: Junction) -> Path:
    """Along a lane of the route, and at its end away by a road that the route doesn't take."""
    turn, branch = next(iter(junction.branches.items()))
    connection = _connection(junction.middle, junction.heading, junction.exits[turn])
    return Path.joined([lane, connection, branch.beside(IN_LANE)])


def _length(path: Path) -> float:
    return float(np.linalg.norm(np.diff(path.xy, axis=0), axis=1).sum())
