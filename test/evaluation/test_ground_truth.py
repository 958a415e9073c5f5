"""The driven future is what was recorded, and no more."""

from dataclasses import replace

import numpy as np
import pytest
from drives import START_NS, circle, poses, straight

from alpamayo_ros.core.types import HORIZON, STEP_NS, EgoPose
from alpamayo_ros.evaluation.ground_truth import GroundTruth

TIMES = np.arange(1, HORIZON + 1) * 0.1
T0 = START_NS + 2_003_000_000  # between two poses


def without(found: list[EgoPose], begin: float, end: float) -> list[EgoPose]:
    """The poses but for those of an interval, in s after the start."""
    return [pose for pose in found if not begin < (pose.stamp_ns - START_NS) * 1e-9 < end]


def test_a_straight_drive_goes_straight_ahead_whatever_its_heading_in_odom() -> None:
    future = GroundTruth(poses(straight(8.0, heading=2.5), 10)).future(T0)
    assert future.steps == HORIZON
    assert future.xyz == pytest.approx(np.stack([8 * TIMES, 0 * TIMES, 0 * TIMES], axis=-1), abs=1e-6)
    assert future.rotation == pytest.approx(np.broadcast_to(np.eye(3), (HORIZON, 3, 3)), abs=1e-9)


def test_a_circle_to_the_left_curves_to_the_left() -> None:
    future = GroundTruth(poses(circle(5.0, 20.0), 10)).future(START_NS + 2_000_000_000)
    angle = 5.0 * TIMES / 20.0
    expected = np.stack([20 * np.sin(angle), 20 * (1 - np.cos(angle)), 0 * angle], axis=-1)
    assert future.xyz == pytest.approx(expected, abs=1e-9)
    assert np.arctan2(future.rotation[:, 1, 0], future.rotation[:, 0, 0]) == pytest.approx(angle, abs=1e-9)


def test_turning_is_interpolated_between_poses() -> None:
    sparse = poses(circle(2.0, 10.0), 10, rate=5.0)
    future = GroundTruth(sparse).future(START_NS + 2_000_000_000)
    turned = np.arctan2(future.rotation[:, 1, 0], future.rotation[:, 0, 0])
    assert turned == pytest.approx(2.0 * TIMES / 10.0, abs=1e-9)  # constant turn rate: slerp is exact


def test_the_order_of_the_poses_does_not_matter() -> None:
    drive = poses(circle(5.0, 20.0), 10)
    shuffled = [drive[number] for number in np.random.default_rng(0).permutation(len(drive))]
    assert np.array_equal(GroundTruth(shuffled).future(T0).xyz, GroundTruth(drive).future(T0).xyz)


@pytest.mark.parametrize(("left", "steps"), [(6.5, 64), (6.4, 64), (6.39, 63), (0.1, 1), (0.09, 0)])
def test_it_ends_with_the_recording(left: float, steps: int) -> None:
    truth = GroundTruth(poses(straight(8.0), 10, rate=100))
    assert truth.future(START_NS + round((10 - left) * 1e9)).steps == steps


@pytest.mark.parametrize("t0_ns", [START_NS - 1, START_NS + 10_000_000_001])
def test_a_t0_outside_the_recording_has_no_future(t0_ns: int) -> None:
    assert GroundTruth(poses(straight(8.0), 10)).future(t0_ns).steps == 0


def test_no_poses_no_future() -> None:
    assert GroundTruth([]).future(T0).steps == 0


def test_it_ends_before_a_gap() -> None:
    truth = GroundTruth(without(poses(straight(8.0), 10), 3.0, 3.5))
    assert truth.future(START_NS + 2_000_000_000).steps == 10  # up to the pose at 3.0 s
    assert truth.future(START_NS + 3_200_000_000).steps == 0  # t0 itself lies in the gap
    small = GroundTruth(without(poses(straight(8.0), 10), 3.0, 3.3))
    assert small.future(START_NS + 2_000_000_000).steps == HORIZON


def test_it_ends_before_the_odometry_jumps() -> None:
    drive = poses(straight(8.0), 10)
    jumped = [
        replace(p, position=p.position + np.array([0, 5, 0])) if p.stamp_ns > START_NS + 4e9 else p for p in drive
    ]
    truth = GroundTruth(jumped)
    assert truth.future(START_NS + 2_000_000_000).steps == 20
    assert truth.future(START_NS + 2_000_000_000).xyz[:, 1] == pytest.approx(np.zeros(20), abs=1e-6)
    after = truth.future(START_NS + 4_100_000_000)
    assert after.steps == 59
    assert after.xyz[:, 1] == pytest.approx(np.zeros(59), abs=1e-6)


@pytest.mark.parametrize("at", [0, 1, 2, 20])
def test_two_metres_aside_are_a_jump_also_at_the_beginning_and_whatever_else_is_wrong(at: int) -> None:
    drive = [replace(pose, linear_velocity=np.array([np.nan, 0, 0])) for pose in poses(straight(8.0), 12)[::10]]
    jumped = [replace(p, position=p.position + np.array([0, 2, 0])) if n > at else p for n, p in enumerate(drive)]
    truth = GroundTruth(jumped)
    assert truth.future(drive[at].stamp_ns).steps == 0
    assert truth.future(drive[at + 2].stamp_ns).steps == HORIZON


def test_braking_hard_is_no_jump() -> None:
    drive = poses(lambda t: (min(t, 3.0) * 30.0, 0.0, 0.0), 10)
    assert GroundTruth(drive).future(START_NS + 2_000_000_000).steps == HORIZON


def test_unusable_poses_are_left_out() -> None:
    drive = poses(straight(8.0), 10)
    drive[120] = replace(drive[120], position=np.array([np.nan, 0, 0]))
    drive[130] = replace(drive[130], orientation=np.zeros(4))
    drive.append(replace(drive[140], position=np.array([1e3, 0, 0])))  # a second one of the same stamp
    future = GroundTruth(drive).future(START_NS + 2_000_000_000)
    assert future.xyz[:, 0] == pytest.approx(8 * TIMES, abs=1e-6)


def test_the_time_offset_moves_the_poses() -> None:
    drive = poses(lambda t: (t**2, 0.0, 0.0), 10)
    shifted = [replace(pose, stamp_ns=pose.stamp_ns - 2 * STEP_NS) for pose in drive]
    t0_ns = START_NS + 2_000_000_000
    assert np.array_equal(GroundTruth(shifted, time_offset=0.2).future(t0_ns).xyz, GroundTruth(drive).future(t0_ns).xyz)
