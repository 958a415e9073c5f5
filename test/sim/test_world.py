"""Worlds: roads and junctions that fit together, and the same ones for the same seed."""

import numpy as np
import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.path import SPACING, Path, symmetric_turn
from alpamayo_ros.sim.route_text import navigation_text
from alpamayo_ros.sim.world import IN_LANE, Turn, World

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_route_is_smooth_and_its_curvature_is_how_its_heading_changes(seed: int) -> None:
    route = World.random(seed, 500).route
    assert np.allclose(np.linalg.norm(np.diff(route.xy, axis=0), axis=1), SPACING, atol=2e-3)
    direction = np.unwrap(np.arctan2(*np.diff(route.xy, axis=0).T[::-1]))
    middle = (route.heading[1:] + route.heading[:-1]) / 2
    assert np.abs(np.angle(np.exp(1j * (direction - middle)))).max() < 0.01
    assert np.allclose(np.diff(route.heading), (route.curvature[1:] + route.curvature[:-1]) / 2 * SPACING, atol=2e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_route_lies_in_the_middle_of_the_right_lane(seed: int) -> None:
    world = World.random(seed, 500)
    for leg in world.legs:
        along = np.arange(leg.begin + 5, leg.end - 5, 7.0)
        for point in world.route.points(along):
            offset = leg.middle.xy - point
            nearest = np.argmin(np.linalg.norm(offset, axis=1))
            heading = leg.middle.heading[nearest]
            left = np.sin(heading) * offset[nearest, 0] - np.cos(heading) * offset[nearest, 1]
            assert left == pytest.approx(IN_LANE, abs=0.02)


@pytest.mark.parametrize("seed", SEEDS)
def test_left_is_left(seed: int) -> None:
    """After a left turn the route is left of where it came in, by the turn's angle; after a right one, right."""
    world = World.random(seed, 1000)
    for junction in world.junctions:
        before, after = world.route.heading_at(junction.begin), world.route.heading_at(junction.end)
        assert np.degrees(after - before) == pytest.approx(junction.turn.value, abs=10.1)
        away = world.route.points(junction.end + 5) - world.route.points(junction.begin)
        left = np.cos(before) * away[1] - np.sin(before) * away[0]
        assert np.sign(np.round(left)) == np.sign(junction.turn.value)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_junction_has_another_way_out(seed: int) -> None:
    for junction in World.random(seed, 1000).junctions:
        assert junction.branches
        assert set(junction.exits) == {junction.turn, *junction.branches}


@pytest.mark.parametrize("seed", SEEDS)
def test_the_route_never_comes_near_itself(seed: int) -> None:
    points = World.random(seed, 2000).route.xy[::16]
    along = np.arange(len(points)) * 16 * SPACING
    apart = np.abs(along[:, None] - along) > 60
    assert np.linalg.norm(points[:, None] - points, axis=-1)[apart].min() > 12


def test_all_turns_occur_about_equally_often() -> None:
    turns = [junction.turn for seed in range(60) for junction in World.random(seed, 1000).junctions]
    shares = {turn: turns.count(turn) / len(turns) for turn in Turn}
    assert min(shares.values()) > 0.25


def test_a_longer_route_only_adds_to_its_end() -> None:
    short, long = World.random(3, 500), World.random(3, 1500)
    count = len(short.route.xy) - 2
    assert np.allclose(short.route.xy[:count], long.route.xy[:count])


def test_other_seeds_are_other_worlds() -> None:
    first, second = World.random(3, 500), World.random(4, 500)
    assert not np.allclose(first.route.xy[400], second.route.xy[400], atol=0.1)


def test_navigation_speaks_before_junctions_only() -> None:
    world = next(w for w in (World.random(seed, 500) for seed in range(50)) if w.junctions[0].turn is Turn.LEFT)
    junction = world.junctions[0]
    middle = (junction.begin + junction.end) / 2
    assert navigation_text(world, middle - 61) is None
    assert navigation_text(world, middle - 59) == "Turn left in 60m"
    assert navigation_text(world, middle - 30) == "Turn left in 30m"
    assert navigation_text(world, middle) == "Turn left"
    after = navigation_text(world, junction.end + 0.1)
    assert after is None or world.junctions[1].begin - junction.end < 70


def test_navigation_says_when_to_go_straight() -> None:
    world = next(w for w in (World.random(seed, 500) for seed in range(50)) if w.junctions[0].turn is Turn.STRAIGHT)
    assert navigation_text(world, world.junctions[0].begin - 20) == "Continue straight"


@pytest.mark.parametrize("angle", [np.radians(100), np.radians(-80), 0.0])
def test_a_turn_ends_where_and_as_it_has_to(angle: float) -> None:
    end = 14.0 * np.array([np.cos(angle / 2), np.sin(angle / 2)])
    turn = symmetric_turn(np.zeros(2), 0.0, end, angle)
    assert np.allclose(turn.xy[-1], end, atol=0.02)
    assert turn.heading[-1] == pytest.approx(angle, abs=1e-3)


def test_a_parallel_to_the_left_of_a_left_bend_is_shorter_and_tighter() -> None:
    path = Path.clothoids(np.zeros(2), 0.0, [0.0, 20.0, 60.0], [0.0, 1 / 50, 1 / 50])
    inner = path.beside(2.0)
    assert inner.curvature[-1] == pytest.approx(1 / 48)
    assert np.linalg.norm(np.diff(inner.xy, axis=0), axis=1).sum() < path.length


@pytest.mark.parametrize(
    ("seed", "length", "message"),
    [(-1, 500, "a world of seed -1"), (0, 10, "a route of 10 m, expected 50"), (0, float("nan"), "a route of nan m")],
)
def test_an_impossible_world_is_refused(seed: int, length: float, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        World.random(seed, length)


def test_the_share_of_roads_with_a_car_ahead_can_be_told_and_changes_no_road() -> None:
    def cars_ahead(world: World) -> int:
        return sum(car.on_route_until > 0 for car in world.cars)

    for seed in range(4):
        usual, empty, busy = (
            World.random(seed, 800, **share) for share in ({}, {"ahead_share": 0}, {"ahead_share": 1})
        )
        assert np.array_equal(usual.route.xy, busy.route.xy[: len(usual.route.xy)])
        assert cars_ahead(empty) == 0
        assert cars_ahead(busy) == sum(leg.end - leg.begin > 100 for leg in busy.legs)
        assert cars_ahead(usual) <= cars_ahead(busy)
