"""The vehicle's pose from transforms, message by message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.ego import EgoBuffer
from alpamayo_ros.core.odometry import pose_fault
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.transform_odometry import TransformOdometry
from alpamayo_ros.core.types import EgoPose


def transform(seconds: float, parent: str, child: str, x: float, w: float = 1.0) -> Any:
    stamp = SimpleNamespace(sec=int(seconds), nanosec=round(seconds % 1 * 1e9))
    return SimpleNamespace(
        header=SimpleNamespace(frame_id=parent, stamp=stamp),
        child_frame_id=child,
        transform=SimpleNamespace(
            translation=SimpleNamespace(x=x, y=0.0, z=0.0), rotation=SimpleNamespace(x=0.0, y=0.0, z=0.0, w=w)
        ),
    )


@pytest.fixture
def odometry() -> TransformOdometry:
    return TransformOdometry("odom", "base_link", ChildFrame(OdometrySettings()))


def drive(odometry: TransformOdometry, begin: float = 100.0, seconds: float = 1.0) -> list[EgoPose]:
    """At 10 m/s, 50 times a second."""
    times = [begin + k / 50 for k in range(round(seconds * 50))]
    return [pose for t in times for pose in odometry.poses([transform(t, "odom", "base_link", 10 * (t - begin))])]


def test_there_is_a_pose_for_each_of_its_transforms_and_none_for_others(odometry: TransformOdometry) -> None:
    message = [transform(1, "base_link", "wheel", 0.3), transform(1, "odom", "base_link", 5.0)]
    assert [pose.position[0] for pose in odometry.poses(message)] == [5.0]
    assert odometry.poses(message[:1]) == []


def test_no_velocity_is_told_since_it_would_explain_jumps(odometry: TransformOdometry) -> None:
    assert all(pose.linear_velocity is None and pose.angular_velocity is None for pose in drive(odometry))


@pytest.mark.parametrize(
    ("hz", "metres"), [(10, 5.0), (20, 5.0), (50, 5.0), *((hz, far) for hz in (5, 10, 20, 50) for far in (10.0, 500.0))]
)
@pytest.mark.parametrize("lost", [False, True])
def test_jumps_are_found_there_and_back(odometry: TransformOdometry, hz: int, lost: bool, metres: float) -> None:
    buffer, jumps = EgoBuffer(500_000_000, 1.0, standstill_padding=True), []
    for k in range(4 * hz):
        x = 10.0 * k / hz + (metres if 2 * hz <= k < 3 * hz else 0.0)
        if lost and k == 2 * hz - 1:
            continue
        for pose in odometry.poses([transform(100 + k / hz, "odom", "base_link", x)]):
            _, jumped = buffer.add(pose)
            jumps += [k / hz] * bool(jumped)
    assert jumps == [2.0, 3.0]


@pytest.mark.parametrize(("x", "w"), [(np.nan, 1.0), (1e300, 1.0), (1.0, 0.0), (1.0, np.nan), (1.0, 1e300)])
@pytest.mark.parametrize("edge", [("odom", "base_footprint"), ("base_footprint", "base_link")])
def test_one_that_is_no_pose_is_there_to_be_refused(
    odometry: TransformOdometry, x: float, w: float, edge: tuple[str, str]
) -> None:
    """From the first message on, and wherever on the way it is."""
    odometry.add_static(SimpleNamespace(transforms=[]))
    good = [transform(99, "odom", "base_footprint", 0.0), transform(99, "base_footprint", "base_link", 0.0)]
    bad = [each for each in good if (each.header.frame_id, each.child_frame_id) != edge] + [transform(99, *edge, x, w)]
    assert [pose_fault(pose) is None for pose in odometry.poses(bad)] == [False]
    assert [pose_fault(pose) is None for pose in odometry.poses(good)] == [True] * (1 + (edge[0] == "odom"))


@pytest.mark.parametrize("order", [1, -1])
def test_two_that_move_are_joined_at_one_time_whatever_their_order(odometry: TransformOdometry, order: int) -> None:
    for k in range(10):
        moved = transform(100 + k / 50, "odom", "base_footprint", 15 * k / 50)
        tilted = transform(100 + k / 50, "base_footprint", "base_link", 1.0)
        assert [pose.position[0] for pose in odometry.poses([moved, tilted][::order])] == pytest.approx(
            [15 * k / 50 + 1]
        )


def test_a_slower_one_further_up_is_interpolated_and_waited_for(odometry: TransformOdometry) -> None:
    found = []
    for k in range(51):
        message = [transform(100 + k / 50, "base_footprint", "base_link", 0.0)]
        if k % 5 == 0:
            message.append(transform(100 + k / 50, "odom", "base_footprint", 15 * k / 50))
        found.append(odometry.poses(message))
    assert [len(poses) for poses in found] == [1] + [0, 0, 0, 0, 5] * 10
    for pose in (pose for poses in found for pose in poses):
        assert pose.position[0] == pytest.approx(15 * (pose.stamp_ns * 1e-9 - 100), abs=1e-6)
    assert odometry.warning == ""


@pytest.mark.parametrize("upper_hz", [1, 2, 10, 50])
@pytest.mark.parametrize("metres", [3.0, 5.0, 50.0])
def test_a_jump_further_up_stays_a_jump_and_is_not_smeared_into_a_movement(upper_hz: int, metres: float) -> None:
    """A localiser that finds out where it is: map -> odom steps, stamped ahead by its period."""
    odometry = TransformOdometry("map", "base_link", ChildFrame(OdometrySettings()))
    offsets: dict[str, set[float]] = {}
    for k in range(400):
        message = [transform(100 + k / 50, "odom", "base_link", 10 * k / 50)]
        if k % (50 // upper_hz) == 0:
            ahead = 100 + k / 50 + 1 / upper_hz
            message.append(transform(ahead, "map", "odom", metres if k >= 200 else 0.0))
        for pose in odometry.poses(message):
            driven = 10 * (pose.stamp_ns * 1e-9 - 100)
            offsets.setdefault(odometry.child_label, set()).add(round(float(pose.position[0]) - driven, 6))
    assert offsets == {"base_link": {0.0}, "base_link (way 2)": {metres}}


def test_what_is_waited_for_in_vain_is_named(odometry: TransformOdometry) -> None:
    odometry.poses([transform(100, "odom", "base_footprint", 0.0), transform(100, "base_footprint", "base_link", 0.0)])
    for k in range(1, 60):
        assert odometry.poses([transform(100 + k / 50, "base_footprint", "base_link", 0.0)]) == []
    assert odometry.warning == "the poses wait for the transform odom -> base_footprint, whose newest is 1.2 s older"
    assert odometry.poses([transform(101.5, "odom", "base_footprint", 0.0)]) == []
    assert "poses are left out: a transform further up has gaps over 1 s" in odometry.warning


def test_a_late_one_further_up_does_not_replace_a_newer_one(odometry: TransformOdometry) -> None:
    for t, x in ((100.0, 0.0), (100.2, 2.0), (100.1, 1.0)):
        odometry.poses([transform(t, "odom", "base_footprint", x), transform(100, "base_footprint", "base_link", 0.0)])
    (pose,) = odometry.poses([transform(100.15, "base_footprint", "base_link", 0.0)])
    assert pose.position[0] == pytest.approx(1.5)


def test_a_recording_that_begins_anew_is_not_joined_with_its_end(odometry: TransformOdometry) -> None:
    def play(x: float) -> list[float]:
        found = []
        for k in range(50):
            upper = transform(100 + k / 10, "odom", "base_footprint", x)
            found += odometry.poses([upper, transform(100 + k / 10, "base_footprint", "base_link", 0.0)])
        return [float(pose.position[0]) for pose in found]

    assert play(7.0) == [7.0] * 50
    assert set(play(9.0)[2:]) == {9.0}  # three in a row tell that time has jumped


def test_a_loop_of_two_seconds_joins_no_pose_that_counts_with_what_was_further_up_before(
    odometry: TransformOdometry,
) -> None:
    """The first two are late for a builder, which takes the third for the beginning of another drive."""

    def play(x: float, begin: float) -> list[float]:
        found = []
        for k in range(110):
            message = [transform(begin + k / 50, "base_footprint", "base_link", 0.0)]
            if k % 5 == 4:
                message.append(transform(begin + k / 50, "odom", "base_footprint", x))
            found += odometry.poses(message)
        return [float(pose.position[0]) for pose in found]

    play(7.0, 100.0)
    again = play(9.0, 100.5)
    assert again[:2] == [7.0, 7.0]
    assert set(again[2:]) == {9.0}


def test_a_frame_has_the_parent_that_was_named_last(odometry: TransformOdometry) -> None:
    odometry.poses([transform(100, "odom", "base_link", 1.0)])  # of a program that is gone
    message = [transform(101, "odom", "base_footprint", 5.0), transform(101, "base_footprint", "base_link", 0.0)]
    assert [pose.position[0] for pose in odometry.poses(message)] == [5.0]
    assert odometry.child_label == "base_link (way 2)"


def test_a_static_transform_that_changes_on_the_way_makes_another_frame_of_it(odometry: TransformOdometry) -> None:
    labels = []
    for static in (1.0, 1.0, 1.2):
        mast = transform(0, "base_link", "mast", static)  # which is elsewhere
        odometry.add_static(SimpleNamespace(transforms=[transform(0, "base_footprint", "base_link", static), mast]))
        assert [pose.position[0] for pose in odometry.poses([transform(100, "odom", "base_footprint", 3.0)])] == [
            3 + static
        ]
        labels.append(odometry.child_label)
    assert labels == ["base_link", "base_link", "base_link (way 2)"]


def test_frames_between_which_nothing_leads_are_named_with_what_there_is(odometry: TransformOdometry) -> None:
    assert odometry.warning == ""
    odometry.poses([transform(100, "odm", "base_link", 1.0)])
    assert odometry.warning == (
        "no moving transforms lead from 'odom' (odometry.tf_parent) to 'base_link' (odometry.base_frame); "
        "/tf and /tf_static have odm -> base_link (1)"
    )
    odometry.poses([transform(100, "base_link", "odm", 1.0)])  # round in circles
    assert "odm -> base_link (1)" in odometry.warning
