"""After a jump it drives on, whatever is sent, and poses that stand still for a moment are none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from odometry_drives import Poses, as_it_is, at, driven, in_odom, jumps, moved, with_zeros, without_twist

from alpamayo_ros.core.ego import EgoBuffer, EgoHistory

each_source = pytest.mark.parametrize(
    "source", [as_it_is, without_twist, with_zeros, in_odom], ids=lambda source: source.__name__
)


def held(speed: float, localised_hz: float, hz: float, seconds: float = 8.0) -> Poses:
    """Poses of a slower localiser, each sent again with a new stamp until the next is there; the twist is right."""
    known = [math.floor(k / hz * localised_hz + 1e-9) / localised_hz for k in range(round(seconds * hz))]
    return [at(1 + k / hz, speed * then, 0.0, 0.0, speed) for k, then in enumerate(known)]


def has_histories_at_the_end(poses: Poses) -> bool:
    """Whether the node's buffer has one at every pose of the last three seconds."""
    buffer, found = EgoBuffer(300_000_000, 1.0, standstill_padding=True), []
    for pose in poses:
        buffer.add(pose)
        if pose.stamp_ns > poses[-1].stamp_ns - 3e9:
            found.append(isinstance(buffer.history(pose.stamp_ns), EgoHistory))
    return all(found)


@pytest.mark.parametrize(
    ("localised_hz", "hz", "speed"),
    [
        (10, 50, 14.0),
        (10, 20, 18.0),
        (20, 100, 27.0),
        (10, 50, 27.0),
        (10, 100, 36.0),
        (5, 50, 20.0),
        (9.9, 10, 30.0),
        (4.5, 10, 25.0),
    ],
)
def test_poses_that_come_less_often_than_they_are_sent_are_no_jumps(localised_hz: float, hz: int, speed: float) -> None:
    poses = held(speed, localised_hz, hz)
    assert jumps(poses) == []
    assert has_histories_at_the_end(poses)
    assert len(jumps(moved(poses, 2 * hz, len(poses), 3.0, math.pi / 2))) == 1


@each_source
@pytest.mark.parametrize(("hz", "speed"), [(5, 15.0), (10, 15.0), (10, 30.0), (20, 30.0)])
@pytest.mark.parametrize("late", [False, True])
def test_a_pose_that_is_sent_again_once_is_no_jump(
    source: Callable[[Poses], Poses], hz: int, speed: float, late: bool
) -> None:
    """The localiser is slow by one pose from then on, or was late once."""
    poses = source(driven(speed, hz))
    stands, last = 2 * hz, len(poses) if not late else 2 * hz + 1
    found = list(poses)
    for number in range(stands, last):
        found[number] = replace(poses[number - 1], stamp_ns=poses[number].stamp_ns)
    assert [each for each in jumps(found) if each > 1] == []  # a twist of zeros explains no first step


@each_source
@pytest.mark.parametrize("hz", [5, 10])
@pytest.mark.parametrize("speed", [0.0, 10.0])
def test_two_metres_aside_after_a_pose_that_was_sent_again_are_a_jump(
    source: Callable[[Poses], Poses], hz: int, speed: float
) -> None:
    found = source(driven(speed, hz))
    found[2 * hz] = replace(found[2 * hz - 1], stamp_ns=found[2 * hz].stamp_ns)
    jumped = jumps(moved(found, 2 * hz + 1, len(found), 2.0, math.pi / 2))
    assert [each for each in jumped if each > 1] == [2 * hz + 1]


def test_a_localiser_that_stands_for_longer_has_jumped_when_it_goes_on() -> None:
    poses = driven(10.0, 50)
    for number in range(100, 118):
        poses[number] = replace(poses[99], stamp_ns=poses[number].stamp_ns)
    assert jumps(poses) == [118]


def test_over_a_short_time_stamps_tell_no_speed() -> None:
    """Of 100 poses a second each second one is stamped 4 ms late, then none come for 0.25 s."""
    poses = [replace(pose, stamp_ns=pose.stamp_ns + n % 2 * 4_000_000) for n, pose in enumerate(driven(20.0, 100))]
    for last in (200, 201):
        assert jumps(without_twist(poses[:last] + poses[last + 25 :])) == []


def test_a_twist_counts_where_two_poses_tell_little() -> None:
    """The second of them, 10 ms after the first, is stamped 4 ms late, then none come for 0.25 s."""
    poses = driven(30.0, 100)
    assert jumps([poses[0], replace(poses[1], stamp_ns=poses[1].stamp_ns + 4_000_000), *poses[25:]]) == []


@pytest.mark.parametrize("hz", [10, 50])
def test_a_jump_tells_nothing_of_the_speed_after_it(hz: int) -> None:
    assert jumps(without_twist(moved(driven(10.0, hz), 2 * hz, 4 * hz, 50.0, 0.0))) == [2 * hz]


def test_a_localiser_that_runs_away_faster_than_any_vehicle_jumps_at_every_step() -> None:
    poses = without_twist(driven(10.0, 10))
    for first in range(20, 25):
        poses = moved(poses, first, len(poses), 20.0, math.pi / 2)
    assert jumps(poses) == [20, 21, 22, 23, 24]


def test_a_jump_that_comes_again_later_is_one_again() -> None:
    poses = moved(moved(driven(10.0, 10), 15, 40, 3.0, math.pi / 2), 25, 40, 3.0, math.pi / 2)
    assert jumps(poses) == [15, 25]


@pytest.mark.parametrize("source", [without_twist, with_zeros])
@pytest.mark.parametrize(("hz", "rate"), [(5, 1.9), (5, -2.5), (4, 2.9), (2, 0.8)])
def test_a_turn_on_the_spot_that_no_rate_tells_of_is_one_jump_and_no_more(
    source: Callable[[Poses], Poses], hz: int, rate: float
) -> None:
    assert jumps(source(driven(0.0, hz, 8.0, turn=lambda t: rate if t >= 2 else 0.0))) == [2 * hz + 1]


def test_a_heading_that_jumps_there_and_back_jumps_twice() -> None:
    poses = without_twist(driven(0.0, 10))
    poses[20] = replace(poses[20], orientation=at(0.0, 0.0, 0.0, 0.7 + 0.8, 0.0).orientation)
    assert jumps(poses) == [20, 21]


def test_a_heading_that_runs_away_faster_than_any_vehicle_jumps_at_every_step() -> None:
    assert jumps(without_twist(driven(0.0, 10, turn=lambda t: 8.0 if 2 <= t < 3 else 0.0))) == list(range(21, 31))
