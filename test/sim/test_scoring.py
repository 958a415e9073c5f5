"""Scores of closed loops: what leaves the lane is counted, and what doesn't, is not."""

import numpy as np
import pytest

from alpamayo_ros.sim.scoring import Trace, body_corners, leaves_lane, overlap, score, score_table
from alpamayo_ros.sim.world import World

WORLD = World.random(0, 400.0)  # its first junction comes after 180 m


def trace_beside(left: float, until: float = 150.0) -> Trace:
    """Along the route at 10 m/s, so far to the left of it."""
    along = np.arange(0.0, until + 0.5, 1.0)
    poses = np.column_stack([WORLD.route.points(along, left), WORLD.route.heading_at(along)])
    none = np.zeros(len(along))
    return Trace(along / 10, poses, none + 10, along, none + left, none.astype(bool))


@pytest.mark.parametrize("left", [0.0, 0.6, -0.6])
def test_within_the_lane(left: float) -> None:
    assert not leaves_lane(WORLD, trace_beside(left)).any()


@pytest.mark.parametrize("left", [1.3, -1.3, 6.0])
def test_a_body_over_the_line_has_left_the_lane(left: float) -> None:
    result = score(WORLD, trace_beside(left))
    assert result.lane_departures == 1
    assert result.first_departure_m == 0
    assert result.mean_offset_m == pytest.approx(abs(left))
    assert not result.passed


def test_a_body_askew_leaves_by_its_corner() -> None:
    trace = trace_beside(0.5)
    assert not leaves_lane(WORLD, trace).any()
    trace.poses[50:60, 2] += 0.3
    assert set(np.flatnonzero(leaves_lane(WORLD, trace))) == set(range(50, 60))
    assert score(WORLD, trace).lane_departures == 1


def test_a_route_counts_as_driven_at_its_end_only() -> None:
    assert not score(WORLD, trace_beside(0.0, 399.0)).passed
    result = score(WORLD, trace_beside(0.0, 401.0))
    assert result.passed
    assert result.distance_m == pytest.approx(400)
    assert result.seconds == pytest.approx(40.1)


def test_a_collision_fails_it() -> None:
    trace = trace_beside(0.0, 401.0)
    trace.hits[100:110] = True
    trace.hits[120] = True
    result = score(WORLD, trace)
    assert result.collisions == 2
    assert not result.passed


def test_the_body_is_around_the_rear_axle() -> None:
    (corners,) = body_corners(np.array([[0.0, 0.0, np.pi / 2]]))
    assert np.allclose(sorted(map(tuple, corners)), [(-0.925, -0.9), (-0.925, 3.7), (0.925, -0.9), (0.925, 3.7)])


def test_overlap_of_boxes() -> None:
    first = body_corners(np.array([[0.0, 0.0, 0.0]]))[0]
    assert overlap(first, body_corners(np.array([[4.5, 0.0, 0.0]]))[0])
    assert not overlap(first, body_corners(np.array([[4.7, 0.0, 0.0]]))[0])
    assert not overlap(first, body_corners(np.array([[0.0, 1.9, 0.0]]))[0])
    assert overlap(first, body_corners(np.array([[0.0, 1.9, -0.3]]))[0])


def test_the_table_says_how_many_passed() -> None:
    results = [score(WORLD, trace_beside(left, 401.0)) for left in (0.0, 1.3)]
    assert score_table(results).endswith("1 of 2 routes driven to their end in the lane, without a collision")
