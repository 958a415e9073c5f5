"""Steps that no motion explains are jumps, and nothing that a vehicle does is one."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from odometry_drives import Poses, as_it_is, at, driven, in_odom, jumps, moved, with_zeros, without_twist

from alpamayo_ros.core.jump import JumpFinder
from alpamayo_ros.core.rotation import matrix_from_quaternion, quaternion_from_matrix
from alpamayo_ros.core.types import EgoPose

DATA = Path(__file__).parents[2].parent / "shared" / "data"


SOURCES = [as_it_is, without_twist, with_zeros, in_odom]
each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)


@each_source
@pytest.mark.parametrize("hz", [5, 10, 20, 50, 100])
@pytest.mark.parametrize("speed", [1.0, 10.0, 20.0])
@pytest.mark.parametrize("degrees", [0, 60, 90, 180, 270])
def test_two_metres_are_a_jump_in_any_direction_there_and_back(
    source: Callable[[Poses], Poses], hz: int, speed: float, degrees: float
) -> None:
    poses = source(driven(speed, hz))
    there, back = 2 * hz, 3 * hz
    opening = [1] if source is with_zeros and speed / hz > 1 else []  # nothing has told yet that it moves
    assert jumps(moved(poses, there, back, 2.0, math.radians(degrees))) == [*opening, there, back]


def test_a_single_pose_elsewhere_is_a_jump_there_and_back() -> None:
    assert jumps(moved(driven(10.0, 5), 9, 10, 2.0, math.pi / 2)) == [9, 10]


def test_the_numbers_say_how_far_it_is_off() -> None:
    last, pose = at(1.0, 0.0, 0.0, 0.0, 10.0), at(1.2, 2.0, 3.0, 0.0, 10.0)
    numbers = JumpFinder(1.0).find(last, pose)
    assert numbers is not None
    # 3 m aside, less 10 m/s^2 (0.2 s)^2 / 2 and 10 m/s for 0.02 s
    assert numbers["off_m"] == pytest.approx(3.0 - 0.2 - 0.2)
    assert numbers["distance_m"] == pytest.approx(math.hypot(2.0, 3.0), abs=1e-3)
    assert numbers["explained_m"] == pytest.approx(1.5 * 10.0 * 0.2)


def test_a_turn_that_no_rate_explains_is_a_jump() -> None:
    poses = driven(10.0, 10)
    turned = [pose if pose.stamp_ns < 3e9 else replace(pose, orientation=np.array([0, 0, 0.6, 0.8])) for pose in poses]
    assert jumps(turned) == [20]


HARD = {
    "braking with 1 g": {"speed": 35.0, "acceleration": lambda t: -9.8 if t > 1 else 0.0},
    "starting with 0.6 g": {"speed": 0.0, "acceleration": lambda t: 6.0 if t > 1 else 0.0},
    "a bend with 0.9 g": {"speed": 20.0, "turn": lambda t: 0.45 if t > 1 else 0.0},
    "turning round": {"speed": 5.0, "turn": lambda t: 1.0 if t > 1 else 0.0},
    "swerving": {"speed": 25.0, "turn": lambda t: 0.35 * math.copysign(1, math.sin(2 * math.pi * t))},
}


@each_source
@pytest.mark.parametrize("hz", [5, 10, 20, 50, 100])
@pytest.mark.parametrize("what", HARD)
def test_nothing_that_a_vehicle_does_is_a_jump(source: Callable[[Poses], Poses], hz: int, what: str) -> None:
    assert [each for each in jumps(source(driven(hz=hz, **HARD[what]))) if each > 1] == []


@each_source
@given(
    speed=st.floats(0, 25),
    hz=st.sampled_from([5, 10, 25, 50]),
    acceleration=st.floats(-6, 4),
    turn=st.floats(-0.3, 0.3),
    noise=st.integers(0, 2**31),
)
def test_stamps_that_are_off_and_poses_that_are_lost_make_no_jumps(
    source: Callable[[Poses], Poses], speed: float, hz: int, acceleration: float, turn: float, noise: int
) -> None:
    """By 5 ms, with 2 cm of noise; a third of the poses is lost, as far as that leaves no gap of 0.3 s."""
    random = np.random.default_rng(noise)
    found: Poses = []
    for pose in source(driven(speed, hz, 3.0, lambda _: acceleration, lambda _: turn)):
        if found and random.random() < 1 / 3 and pose.stamp_ns + 1e9 / hz < found[-1].stamp_ns + 0.29e9:
            continue
        stamp_ns = pose.stamp_ns + int(random.uniform(-5e6, 5e6))
        found.append(replace(pose, stamp_ns=stamp_ns, position=pose.position + random.normal(0, 0.02, 3)))
    # a twist of zeros explains no first step
    assert [each for each in jumps(found) if each > 1 or source is not with_zeros] == []


@pytest.mark.parametrize("source", [without_twist, with_zeros])
def test_what_has_changed_while_no_poses_came_is_one_jump_and_no_more(source: Callable[[Poses], Poses]) -> None:
    """It stood, and drives when the poses come back: with the rule alone it would jump for ever."""
    poses = source(driven(0.0, 5, 10.0, lambda t: 3.0 if 2 < t < 6 else 0.0))
    seen = [pose for pose in poses if not 2.9 < pose.stamp_ns * 1e-9 < 7.1]
    assert len(jumps(seen)) == 1


def test_a_twist_of_any_size_hides_no_jump() -> None:
    poses = [replace(pose, linear_velocity=np.array([1e6, 0, 0])) for pose in driven(10.0, 10)]
    assert 20 in jumps(moved(poses, 20, 40, 50.0, math.pi / 2))


def kitti() -> Poses:
    lines = np.loadtxt(DATA / "kitti06_stereo" / "poses_full_06.txt").reshape(-1, 3, 4)
    forward_left_up = np.array([[0, 0, 1], [-1, 0, 0], [0, -1, 0]], float)
    rotation = quaternion_from_matrix(forward_left_up @ lines[:, :, :3] @ forward_left_up.T)
    stamps = [round(1e9 + number * 1e9 / 9.62) for number in range(len(lines))]
    return list(map(EgoPose, stamps, lines[:, :, 3] @ forward_left_up.T, rotation))


def comma() -> Poses:
    times, positions, velocities, orientations = (
        np.load(DATA / "comma2k19_pose_can" / "global_pose" / f"frame_{name}")
        for name in ("times", "positions", "velocities", "orientations")
    )
    stamps = [int(each) for each in np.round((times - times[0] + 1) * 1e9)]
    xyzw = orientations[:, [1, 2, 3, 0]]
    twist = np.einsum("nji,nj->ni", matrix_from_quaternion(xyzw), velocities)
    return list(map(EgoPose, stamps, positions - positions[0], xyzw, twist))


def nuscenes() -> list[Poses]:
    scenes = []
    for file in sorted((DATA / "nuscenes_mini_vis4d" / "can_bus").glob("*_pose.json")):
        by_time = {entry["utime"]: entry for entry in json.loads(file.read_text())}
        scenes.append(
            [
                EgoPose(
                    (utime - min(by_time) + 1) * 1000,
                    np.array(by_time[utime]["pos"]),
                    np.array(by_time[utime]["orientation"])[[1, 2, 3, 0]],
                    np.array(by_time[utime]["vel"]),
                    np.array(by_time[utime]["rotation_rate"]),
                )
                for utime in sorted(by_time)
            ]
        )
    return scenes


@each_source
@pytest.mark.parametrize("every", [1, 2, 5, 10])
@pytest.mark.skipif(not DATA.exists(), reason="needs recorded drives in ../shared/data")
def test_recorded_drives_have_none(source: Callable[[Poses], Poses], every: int) -> None:
    """With 50 and 20 poses a second or a part of them, and with 9.62, also without what the source tells of speed."""
    drives = [comma(), *nuscenes(), *([kitti()] if every <= 2 else [])]
    for drive in drives:
        thinned = drive[::every]
        seconds = (thinned[1].stamp_ns - thinned[0].stamp_ns) * 1e-9
        if seconds > 0.35:
            continue
        first = 1 if source is with_zeros else 0  # which explain no first step
        assert [each for each in jumps(source(thinned)) if each > first] == []
