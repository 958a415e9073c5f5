"""Pictures show things where the camera model says they are."""

import time
from dataclasses import replace

import numpy as np
import pytest

from alpamayo_ros.sim.ground import MARKING_WIDTH
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import CAMERAS, rig
from alpamayo_ros.sim.world import IN_LANE, LANE_WIDTH, World

WIDTH, HEIGHT = 320, 180
GENEROUS_RATE = 30.0  # four-camera ticks a second, as required; it is five times as fast on a quiet core


def journey_at(world: World, along: float) -> Journey:
    journey = Journey(world)
    while journey.along < along:
        journey.drive()
    return journey


def in_vehicle(journey: Journey, points: np.ndarray) -> np.ndarray:
    """[N, 3] m, from [N, 2] on the ground of the world."""
    offset = points - journey.vehicle[:2]
    c, s = np.cos(journey.vehicle.yaw), np.sin(journey.vehicle.yaw)
    return np.column_stack([c * offset[:, 0] + s * offset[:, 1], c * offset[:, 1] - s * offset[:, 0], 0 * offset[:, 0]])


def empty_world(seed: int) -> World:
    """Without cars, which stand before what is looked for."""
    return replace(World.random(seed, 300), cars=())


@pytest.mark.parametrize("camera", ["front_wide", "cross_right", "front_tele"])
def test_the_edge_line_is_where_the_camera_model_puts_it(camera: str) -> None:
    """Along the right edge line pixels are brighter than beside it: a mirrored or shifted picture fails."""
    reach = {"front_wide": (4, 10), "cross_right": (2, 5), "front_tele": (14, 26)}[camera]
    contrasts = []
    for world in map(empty_world, range(4)):
        journey = journey_at(world, 8.0)
        model = rig(WIDTH, HEIGHT)[camera]
        picture = Renderer(world, rig(WIDTH, HEIGHT)).draw(journey)[camera].mean(axis=-1)
        along = journey.along + np.arange(*reach, 0.2)

        def brightness(left: float) -> float:
            points = in_vehicle(journey, world.route.points(along, left))  # noqa: B023
            pixels, seen = model.project(points)  # noqa: B023
            assert seen.sum() >= 5
            x, y = np.round(pixels[seen]).astype(int).T
            return float(picture[y, x].mean())  # noqa: B023

        line = -LANE_WIDTH / 2
        contrasts.append(brightness(line) - brightness(line + 4 * MARKING_WIDTH))
    assert min(contrasts) > 40


def test_a_car_ahead_is_where_the_camera_model_puts_it() -> None:
    """Its picture differs from the same one without it around its projection, and nowhere else."""
    checked = 0
    for seed in range(40):
        if checked == 3:
            break
        world = World.random(seed, 300)
        if all(not car.on_route_until for car in world.cars):
            continue
        journey = Journey(world)
        while journey.time_s < 40 and not journey.has_arrived:
            journey.drive()
            ahead = journey.situation.car
            if ahead is not None and 8 < ahead.rear - journey.along - 3.7 < 14:
                break
        else:
            continue
        renderer, model = Renderer(world, rig(WIDTH, HEIGHT)), rig(WIDTH, HEIGHT)["front_wide"]
        middle = world.route.points(np.array([ahead.rear]))
        pixel, seen = model.project(in_vehicle(journey, middle) + np.array([0.0, 0.0, 0.5]))
        if not seen[0]:
            continue
        picture = renderer.draw(journey)["front_wide"].astype(int)
        others = [car for car in journey.traffic.cars if not car.plan.on_route_until]
        journey.traffic.cars = others
        difference = np.abs(picture - renderer.draw(journey)["front_wide"]).max(axis=-1) > 12
        columns = np.nonzero(difference)[1]
        assert abs(np.median(columns) - pixel[0, 0]) < 12
        assert difference[int(pixel[0, 1]), int(pixel[0, 0])]
        checked += 1
    assert checked == 3


def test_the_left_camera_sees_more_road_than_the_right_one() -> None:
    world = empty_world(1)
    pictures = Renderer(world, rig(WIDTH, HEIGHT)).draw(journey_at(world, 5.0))
    gray = {
        name: (np.ptp(pictures[name][95:].astype(float), axis=-1) < 14).mean() for name in ("cross_left", "cross_right")
    }
    assert gray["cross_left"] > gray["cross_right"] + 0.2


def test_pictures_come_in_the_models_order() -> None:
    assert list(CAMERAS) == ["cross_left", "front_wide", "cross_right", "front_tele"]
    world = World.random(0, 300)
    assert list(Renderer(world, rig(64, 48)).draw(Journey(world))) == list(CAMERAS)


def test_the_ground_moves_with_the_world() -> None:
    world = empty_world(1)
    renderer = Renderer(world, rig(WIDTH, HEIGHT))
    here, ahead = (renderer.draw(journey_at(world, along))["cross_right"] for along in (5.0, 6.0))
    assert np.abs(here.astype(int) - ahead)[95:].mean() > 2


def test_weather_differs_between_seeds() -> None:
    brightness = [
        Renderer(World.random(seed, 300), rig(64, 48)).draw(Journey(World.random(seed, 300)))["front_wide"].mean()
        for seed in range(12)
    ]
    assert np.ptp(brightness) > 30


def test_it_is_fast_enough_on_one_core() -> None:
    world = World.random(1, 500)
    renderer, journey = Renderer(world, rig(160, 96)), journey_at(world, 30.0)
    begin = time.process_time()
    for number in range(30):
        renderer.draw(journey, number)
    assert 30 / (time.process_time() - begin) > GENEROUS_RATE


def test_the_lane_lies_right_of_the_roads_middle() -> None:
    assert IN_LANE < 0
