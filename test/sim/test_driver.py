"""The expert driver keeps its lane and its limits, minds cars and stop lines, and says why."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from alpamayo_ros.sim.driver import BRAKING, CRUISE, SIDEWAYS, Situation, plan
from alpamayo_ros.sim.journey import SEEN_AHEAD, SEEN_AROUND, SEEN_WITHIN, STEP_S, Journey
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES, Reason
from alpamayo_ros.sim.traffic import CarAhead
from alpamayo_ros.sim.vehicle import (
    FASTEST_STEERING,
    FRONT,
    LARGEST_JERK,
    LARGEST_STEERING,
    STRONGEST_ACCELERATION,
    STRONGEST_BRAKING,
    VehicleState,
    step,
)
from alpamayo_ros.sim.world import Control, Turn, World


def driven(world: World) -> Iterator[Journey]:
    journey = Journey(world)
    while not journey.has_arrived:
        assert journey.time_s < 200, f"it is stuck {journey.along} m along the route"
        yield journey
        journey.drive()


@pytest.mark.parametrize("seed", range(8))
def test_keeps_lane_and_limits(seed: int) -> None:
    moments = [(journey.left, journey.vehicle) for journey in driven(World.random(seed, 400))]
    assert max(abs(left) for left, _ in moments) < 0.3
    speed = np.array([vehicle.speed for _, vehicle in moments])
    acceleration = np.array([vehicle.acceleration for _, vehicle in moments])
    steering = np.array([vehicle.steering for _, vehicle in moments])
    sideways = np.array([vehicle.speed * vehicle.yaw_rate for _, vehicle in moments])
    assert speed.max() < CRUISE + 0.1
    assert acceleration.min() > -3.0  # nothing here needs it to brake hard
    assert np.abs(sideways).max() < 1.35 * SIDEWAYS
    assert np.abs(np.diff(acceleration)).max() < LARGEST_JERK * STEP_S + BRAKING  # standing still is a jump to 0
    assert np.abs(np.diff(steering)).max() <= FASTEST_STEERING * STEP_S + 1e-9


def test_plans_with_a_car_that_brakes_and_sees_none_speed_up() -> None:
    world = World.random(0, 400)
    journey = Journey(world)
    ahead = {
        change: plan(journey.lane, journey.vehicle, 0.0, Situation(car=CarAhead(25.0, 6.0, change)))[-1]
        for change in (-2.0, 0.0, 1.5)
    }
    assert np.array_equal(ahead[0.0], ahead[1.5])
    assert 3.0 < np.linalg.norm(ahead[0.0] - ahead[-2.0]) < 15.0


def first_junction(matches: Callable[[World], bool]) -> World:
    return next(world for world in (World.random(seed, 400) for seed in itertools.count()) if matches(world))


def nobody_ahead(world: World) -> bool:
    return all(not car.on_route_until for car in world.cars)


def test_stands_before_a_stop_sign_and_goes_on() -> None:
    world = first_junction(lambda w: w.junctions[0].control is Control.STOP_SIGN and nobody_ahead(w))
    line = world.junctions[0].begin
    stops = [(j.along, j.reason) for j in driven(world) if j.vehicle.speed < 0.05]
    assert stops
    assert all(line - 3.0 < along + FRONT < line for along, _ in stops if along < line)
    assert stops[0][1] is Reason.STOP_AT_LINE
    assert 1.4 < sum(along < line for along, _ in stops) * STEP_S < 2.5


def test_waits_while_a_light_is_red() -> None:
    world = first_junction(lambda w: w.junctions[0].control is Control.RED_LIGHT and nobody_ahead(w))
    line = world.junctions[0].begin
    for journey in driven(world):
        if journey.along + FRONT > line:
            break
    assert not journey.traffic.is_red(0)
    assert journey.time_s > 5


def test_does_not_stop_at_a_green_light() -> None:
    world = first_junction(
        lambda w: (
            (w.junctions[0].control, w.junctions[0].turn) == (Control.GREEN_LIGHT, Turn.STRAIGHT) and nobody_ahead(w)
        )
    )
    end = world.junctions[0].end
    assert min(journey.vehicle.speed for journey in driven(world) if journey.along < end) > 4


def test_keeps_its_distance_to_cars() -> None:
    seen = 0
    for seed in range(10):
        for journey in driven(World.random(seed, 400)):
            if journey.situation.car is not None:
                seen += 1
                assert journey.situation.car.rear - journey.along - FRONT > 2.5
    assert seen > 500


def test_minds_a_car_only_when_a_camera_shows_it_large_enough() -> None:
    seen, unseen = 0, 0
    for seed in range(10):
        for journey in driven(World.random(seed, 400)):
            car = journey.traffic.ahead(journey.along)
            if car is None:
                continue
            rear = journey.world.route.points(car.rear)
            offset = rear - np.array(journey.vehicle[:2])
            distance = np.linalg.norm(offset)
            angle = np.arctan2(offset[1], offset[0]) - journey.vehicle.yaw
            ahead = abs(np.angle(np.exp(1j * angle)))
            if distance < SEEN_AROUND - 1 or (distance < SEEN_AHEAD - 1 and ahead < SEEN_WITHIN - 0.05):
                seen += 1
                assert journey.situation.car == car
            if distance > SEEN_AHEAD + 1 or (distance > SEEN_AROUND + 1 and ahead > SEEN_WITHIN + 0.05):
                unseen += 1
                assert journey.situation.car is None
    assert min(seen, unseen) > 500


def test_every_reason_is_stated_on_some_routes_and_none_flickers() -> None:
    stated, changes, seconds = set[Reason](), 0, 0.0
    for seed in range(25):
        reasons = [journey.reason for journey in driven(World.random(seed, 500))]
        stated |= set(reasons)
        changes += sum(a is not b for a, b in itertools.pairwise(reasons))
        seconds += len(reasons) * STEP_S
    assert stated == set(Reason) - {Reason.RETURN_TO_LANE}  # that takes a push
    assert changes / seconds < 0.4


def test_there_is_one_sentence_for_each_class() -> None:
    assert len(set(SENTENCE_CLASSES)) == len(SENTENCE_CLASSES) == len(Reason)


def test_turns_left_where_the_route_does() -> None:
    world = first_junction(lambda w: w.junctions[0].turn is Turn.LEFT and nobody_ahead(w))
    junction = world.junctions[0]
    journey = next(j for j in driven(world) if j.along > junction.begin - 8)
    assert journey.reason in (Reason.TURN_LEFT, Reason.STOP_AT_LINE, Reason.STOP_AT_LIGHT)
    before = journey.vehicle
    journey = next(j for j in driven(world) if j.along > junction.end + 3)
    offset = np.array(journey.vehicle[:2]) - before[:2]
    assert np.cos(before.yaw) * offset[1] - np.sin(before.yaw) * offset[0] > 10  # y of the vehicle's frame grows


class TestVehicle:
    START = VehicleState(0.0, 0.0, 0.0, 10.0, 0.0, 0.0)

    def test_drives_the_circle_of_its_steering(self) -> None:
        state = self.START._replace(steering=np.arctan(2.8 / 20))
        for _ in range(1000):
            state = step(state, 0.0, state.steering, 0.01)
            assert np.hypot(state.x, state.y - 20) == pytest.approx(20, abs=0.01)
        assert state.yaw == pytest.approx(100 / 20)

    def test_keeps_to_its_limits_whatever_is_asked(self) -> None:
        rng = np.random.default_rng(0)
        state = self.START
        for _ in range(2000):
            before, state = state, step(state, rng.uniform(-50, 50), rng.uniform(-3, 3), 0.02)
            assert STRONGEST_BRAKING <= state.acceleration <= STRONGEST_ACCELERATION
            assert abs(state.steering) <= LARGEST_STEERING
            assert abs(state.steering - before.steering) <= FASTEST_STEERING * 0.02 + 1e-12
            assert state.speed >= 0

    def test_comes_to_a_stand_and_stays_there(self) -> None:
        state = self.START
        for _ in range(300):
            state = step(state, -4.0, 0.0, 0.02)
        assert state.speed == 0
        assert step(state, -4.0, 0.3, 0.02)[:3] == state[:3]
