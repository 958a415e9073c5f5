"""Before a junction, the same pictures come with every way out: another text, another sentence, another plan."""

import math
from dataclasses import replace

import numpy as np
import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.car_plans import CarPlan
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.other_routes import Advice, OtherRoutes
from alpamayo_ros.sim.path import Path, fastest_speeds
from alpamayo_ros.sim.recorded_drive import RecordedDrive, record_drive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES, Reason
from alpamayo_ros.sim.world import Junction, Turn, World

SEED, SECONDS = 3, 14.0  # it comes to a junction
TURNS = {Turn.LEFT: Reason.TURN_LEFT, Turn.RIGHT: Reason.TURN_RIGHT, Turn.STRAIGHT: Reason.GO_STRAIGHT}


def drive(share: float) -> RecordedDrive:
    return record_drive(SEED, SECONDS, image_size=(16, 32), other_routes=share)


def named(text: str) -> Turn:
    return Turn.STRAIGHT if text == "Continue straight" else Turn[text.split()[1].upper()]


def near_junction(world: World, left: float) -> tuple[Journey, Junction]:
    """A drive that has come so near to its first junction, m."""
    journey, junction = Journey(world), world.junctions[0]
    while journey.along < junction.begin - left:
        journey.drive()
    return journey, junction


def standing_car(path: Path, place: float, route_offset: float, on_route_until: float) -> CarPlan:
    """A car that stands at a place of its path, m, once the vehicle drives."""
    return CarPlan(
        path=path,
        speeds=fastest_speeds(path, 1.0, 2.0, 1.5),
        start=place,
        start_speed=0.0,
        appears_at=0.0,
        goes_at=math.inf,
        schedule=((1.0, 0.0),),
        route_offset=route_offset,
        on_route_until=on_route_until,
        never_stops_from=math.inf,
        paint=(0, 0, 0),
    )


def last_speed(plan: np.ndarray) -> float:
    """m/s, at a plan's end."""
    return float(np.linalg.norm(plan[-1, :2] - plan[-2, :2])) / 0.1


def advices(journey: Journey) -> list[Advice]:
    found = [OtherRoutes(seed, 1.0).look(journey, 0.1) for seed in range(8)]
    return [advice for advice in found if advice is not None]


def test_another_route_is_the_same_up_to_the_junction_and_then_leaves_by_its_way() -> None:
    world = World.for_seconds(SEED, SECONDS)
    junction = world.junctions[0]
    for turn in junction.exits:
        other = world.leaving_by(junction, turn)
        assert np.abs(other.route.curvature).max() < 0.3
        assert np.linalg.norm(np.diff(other.route.xy, axis=0), axis=1).max() < 0.26
        same = round(junction.begin / 0.25) - 1
        assert np.abs(other.route.xy[:same] - world.route.xy[:same]).max() < 0.01
        assert np.abs(other.route.xy[-1] - junction.way(turn).xy[-1]).max() < 0.3
    own = world.leaving_by(junction, junction.turn)
    through = round(junction.end / 0.25)
    assert np.abs(own.route.xy[:through] - world.route.xy[:through]).max() < 0.05
    assert own.junctions[0].end == pytest.approx(junction.end)


def test_labels_before_junctions_are_those_of_another_way_out_and_nothing_else_changes() -> None:
    own, other = drive(0.0), drive(1.0)
    assert np.array_equal(own.images, other.images)
    assert np.array_equal(own.positions, other.positions)
    changed = np.abs(own.futures - other.futures).max(axis=(1, 2)) > 0
    assert changed.sum() > 20
    world = World.for_seconds(SEED, SECONDS)
    seen = set()
    for tick in range(len(own.speeds)):
        text = other.navigation[tick]
        if not changed[tick]:
            continue
        assert text is not None
        along = 0.25 * int(np.linalg.norm(world.route.xy - own.positions[tick, :2], axis=1).argmin())
        junction = world.next_junction(along)
        assert junction is not None
        assert named(text) in junction.exits
        assert named(text) is not junction.turn
        seen.add(named(text))
        assert np.linalg.norm(own.futures[tick, 0] - other.futures[tick, 0]) < 0.05
        end = own.positions[tick] + own.rotations[tick] @ other.futures[tick, -1]
        route = world.leaving_by(junction, named(text)).route.xy
        assert np.linalg.norm(route - end[:2], axis=1).min() < 0.5
        wrong = {SENTENCE_CLASSES[reason] for turn, reason in TURNS.items() if turn is not named(text)}
        assert other.sentences[tick] not in wrong
    assert seen == set(world.junctions[0].exits) - {world.junctions[0].turn}
    assert other.classes.tolist() == [SENTENCE_CLASSES.index(sentence) for sentence in other.sentences]


def test_a_share_of_ticks_is_labelled_otherwise_and_the_same_seed_chooses_the_same() -> None:
    every, some, again = drive(1.0), drive(0.5), drive(0.5)
    own = drive(0.0)
    of_every, of_some = (np.abs(own.futures - each.futures).max(axis=(1, 2)) > 0 for each in (every, some))
    assert (of_some <= of_every).all()
    assert of_some.sum() / of_every.sum() == pytest.approx(0.5, abs=0.2)
    assert np.array_equal(some.futures, again.futures)
    assert some.navigation == again.navigation
    with pytest.raises(ConfigurationError, match="other routes for 5 of the ticks"):
        drive(5)


def test_a_way_out_that_another_car_has_taken_is_not_offered() -> None:
    world = World.for_seconds(SEED, SECONDS)
    junction = world.junctions[0]
    (turn, *_) = junction.branches
    gone = standing_car(junction.way(turn), 15.0, junction.begin, on_route_until=5.0)
    free, _ = near_junction(replace(world, cars=()), 15.0)
    taken, _ = near_junction(replace(world, cars=(gone,)), 15.0)
    assert turn in {named(advice.navigation) for advice in advices(free)}
    assert turn not in {named(advice.navigation) for advice in advices(taken)}


def test_a_car_that_waits_where_the_route_goes_does_not_hold_up_another_route() -> None:
    world = World.for_seconds(SEED, SECONDS)
    car = standing_car(world.route, world.junctions[0].end + 8.0, 0.0, on_route_until=world.route.length)
    journey, _ = near_junction(replace(world, cars=(car,)), 12.0)
    assert journey.situation.car is not None
    assert last_speed(journey.plan()) < 2.0  # it comes to a stand behind the car
    speeds = [last_speed(advice.plan) for advice in advices(journey)]
    assert speeds
    assert min(speeds) > 4.0
