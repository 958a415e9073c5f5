"""What other cars are going to do: cars ahead that wait, brake and go, and cars that come the other way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import Array
from alpamayo_ros.sim.path import Path, fastest_speeds

CAR_LENGTH, CAR_WIDTH, CAR_HEIGHT = 4.4, 1.85, 1.5  # m
FASTEST, SIDEWAYS, BRAKING = 11.0, 2.2, 1.5  # m/s, m/s^2
JUNCTION_ZONE = 35.0  # m before a junction, where a car ahead doesn't stop
AHEAD_SHARE, WAITING_SHARE = 0.45, 0.5


@dataclass(frozen=True, eq=False)
class CarPlan:
    """One car: where it drives, when it appears and starts, and how fast it wants to be."""

    path: Path  # of its middle
    speeds: Array  # [N] m/s, the highest that the path's bends allow
    start: float  # m along its path, where it appears
    start_speed: float  # m/s
    appears_at: float  # m along the route: it is there once the vehicle has come so far
    goes_at: float  # m along the route: it starts with its schedule once the vehicle has come so far
    schedule: tuple[tuple[float, float], ...]  # s and m/s, in turn; the last holds on
    route_offset: float  # m: its distance along the route is that along its path plus this
    on_route_until: float  # m along its path; from there on it is not on the route's lane; 0: it never is
    never_stops_from: float  # m along its path
    paint: tuple[int, int, int]  # RGB


def plan_cars(
    rng: np.random.Generator, lane: Path, oncoming: Path, begin: float, way_off: Path, ahead_share: float = AHEAD_SHARE
) -> list[CarPlan]:
    """The cars of one road.

    Args:
        rng: where chance comes from.
        lane: the route's lane on this road.
        oncoming: the other lane, in its own direction.
        begin: m along the route, where the road begins.
        way_off: along `lane`, then away from the route.
        ahead_share: how probable a car ahead is.
    """
    plans = []
    way_off = Path.joined([way_off])
    length = float(np.linalg.norm(np.diff(lane.xy, axis=0), axis=1).sum())
    if rng.random() < ahead_share and length > 100:
        waits = rng.random() < WAITING_SHARE
        start = float(rng.uniform(55.0, length - 40.0)) if waits else float(rng.uniform(42.0, 58.0))
        plans.append(
            CarPlan(
                path=way_off,
                speeds=fastest_speeds(way_off, FASTEST, SIDEWAYS, BRAKING),
                start=start,
                start_speed=0.0 if waits else float(rng.uniform(3.0, 7.0)),
                appears_at=begin - 40.0 if waits else begin,
                goes_at=begin + start - float(rng.uniform(10.5, 45.0)) if waits else begin,
                schedule=_schedule(rng),
                route_offset=begin,
                on_route_until=length + 5.0,
                never_stops_from=length - JUNCTION_ZONE,
                paint=_paint(rng),
            )
        )
    oncoming = Path.joined([oncoming])
    for _ in range(rng.integers(0, 4)):
        start = float(rng.uniform(0.0, max(oncoming.length - 70.0, 1.0)))
        plans.append(
            CarPlan(
                path=oncoming,
                speeds=fastest_speeds(oncoming, FASTEST, SIDEWAYS, BRAKING),
                start=start,
                start_speed=8.0,
                appears_at=begin,
                goes_at=begin,
                schedule=((1.0, float(rng.uniform(7.0, FASTEST))),),
                route_offset=0.0,
                on_route_until=0.0,
                never_stops_from=0.0,
                paint=_paint(rng),
            )
        )
    return plans


def _schedule(rng: np.random.Generator) -> tuple[tuple[float, float], ...]:
    """It goes, brakes and goes again."""
    steps = [(float(rng.uniform(4, 9)), float(rng.uniform(4, 9)))]
    for _ in range(rng.integers(0, 3)):
        steps.append((float(rng.uniform(4, 7)), float(rng.choice([0.0, 0.0, 3.0]))))
        steps.append((float(rng.uniform(4, 9)), float(rng.uniform(5, 9))))
    return (*steps, (1.0, FASTEST))


def _paint(rng: np.random.Generator) -> tuple[int, int, int]:
    paints = [
        (200, 200, 205),
        (40, 42, 48),
        (150, 30, 30),
        (40, 60, 130),
        (235, 235, 235),
        (180, 150, 60),
        (60, 100, 80),
    ]
    return paints[rng.integers(len(paints))]
