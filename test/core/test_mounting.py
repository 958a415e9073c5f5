from dataclasses import replace

import numpy as np
import pytest

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.types import EgoPose

LEVEL = np.array([0.0, 0.0, 0.0, 1.0])


def test_a_sensor_ahead_of_the_axle_gives_the_axles_pose_behind_it():
    axle = Mounting.from_xyz_rpy([-2.0, 0, 0, 0, 0, 0])
    left = np.array([0, 0, np.sqrt(0.5), np.sqrt(0.5)])  # the vehicle faces +y
    pose = axle.base_pose(EgoPose(0, np.array([10.0, 5.0, 0.0]), left, np.zeros(3), np.zeros(3)))
    np.testing.assert_allclose(pose.position, [10, 3, 0], atol=1e-12)
    np.testing.assert_allclose(pose.orientation, left, atol=1e-12)


def test_turning_about_the_axle_moves_the_sensor_but_not_the_axle():
    axle = Mounting.from_xyz_rpy([-2.0, 0, 0, 0, 0, 0])
    sensor = EgoPose(0, np.zeros(3), LEVEL, np.array([0, 2.0, 0]), np.array([0, 0, 1.0]))
    np.testing.assert_allclose(axle.base_pose(sensor).linear_velocity, 0, atol=1e-12)


def test_a_sensor_mounted_backwards_sees_the_vehicle_drive_forwards():
    backwards = Mounting.from_xyz_rpy([0, 0, 0, 0, 0, np.pi])
    sensor = EgoPose(0, np.zeros(3), LEVEL, np.array([-5.0, 0, 0]), np.array([0, 0, 0.1]))
    base = backwards.base_pose(sensor)
    np.testing.assert_allclose(base.linear_velocity, [5, 0, 0], atol=1e-12)
    np.testing.assert_allclose(base.angular_velocity, [0, 0, 0.1], atol=1e-12)


def test_the_inverse_leads_back():
    mounting = Mounting.from_xyz_rpy([1.0, 0.5, -0.3, 0.1, -0.2, 0.3])
    pose = EgoPose(7, np.array([4.0, 5, 6]), np.array([0.1, 0.2, 0.3, 0.9]) / np.linalg.norm([0.1, 0.2, 0.3, 0.9]),
                   np.array([3.0, 0.1, 0]), np.array([0.01, 0, 0.2]))  # fmt: skip
    back = mounting.inverse().base_pose(mounting.base_pose(pose))
    assert back.stamp_ns == 7
    for name in ("position", "orientation", "linear_velocity", "angular_velocity"):
        np.testing.assert_allclose(getattr(back, name), getattr(pose, name), atol=1e-12, err_msg=name)


def test_without_a_mounting_and_without_a_twist_nothing_changes():
    pose = EgoPose(0, np.ones(3), LEVEL)
    assert Mounting.from_xyz_rpy([0] * 6).base_pose(pose) is pose
    moved = Mounting.from_xyz_rpy([1, 0, 0, 0, 0, 0]).base_pose(replace(pose))
    assert moved.linear_velocity is None
    assert moved.position == pytest.approx([2, 1, 1])
