"""The vehicle's pose from transforms, message by message."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alpamayo_ros.core.child_frame import ChildFrame
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


def test_the_velocity_is_known_when_the_window_is_filled(odometry: TransformOdometry) -> None:
    poses = drive(odometry)
    assert [pose.linear_velocity is None for pose in poses] == [k < 10 for k in range(50)]
    assert poses[-1].linear_velocity == pytest.approx([10, 0, 0])


@pytest.mark.parametrize(("x", "w"), [(np.nan, 1.0), (1e300, 1.0), (1.0, 0.0), (1.0, np.nan), (1.0, 1e300)])
def test_one_that_is_no_pose_is_there_to_be_refused_and_spoils_no_velocity(
    odometry: TransformOdometry, x: float, w: float
) -> None:
    drive(odometry, seconds=0.5)
    (bad,) = odometry.poses([transform(100.5, "odom", "base_link", x, w)])
    assert pose_fault(bad) is not None
    (good,) = odometry.poses([transform(100.52, "odom", "base_link", 5.2)])
    assert good.linear_velocity == pytest.approx([10, 0, 0])


def test_a_recording_that_begins_anew_has_no_velocity_at_first(odometry: TransformOdometry) -> None:
    drive(odometry)
    again = drive(odometry, begin=50.0)
    assert again[0].linear_velocity is None
    assert again[-1].linear_velocity == pytest.approx([10, 0, 0])
