import numpy as np
import pytest

from alpamayo_ros.core.trajectory_points import TIMES_FROM_START_NS, trajectory_points
from alpamayo_ros.core.types import EgoPose

AHEAD = np.stack([np.arange(1, 65) * 1.0, np.zeros(64), np.zeros(64)], axis=-1)  # 10 m/s
ROTATION = np.tile(np.eye(3), (64, 1, 1))
ACTIONS = np.stack([np.arange(64) * 1.0, np.arange(64) * 0.001], axis=-1)
SPEED = np.arange(65) * 1.0


def test_times_are_whole_steps_and_the_first_is_one_step_after_t0():
    assert TIMES_FROM_START_NS[0] == 100_000_000
    assert TIMES_FROM_START_NS[42] == 4_300_000_000
    assert TIMES_FROM_START_NS[-1] == 6_400_000_000


def test_points_move_into_the_odometrys_frame():
    left = np.array([0, 0, np.sqrt(0.5), np.sqrt(0.5)])
    points = trajectory_points(AHEAD, ROTATION, ACTIONS, SPEED, EgoPose(0, np.array([100.0, 50, 2]), left))
    np.testing.assert_allclose(points.position[9], [100, 60, 2], atol=1e-9)
    np.testing.assert_allclose(points.orientation, np.tile(left, (64, 1)), atol=1e-12)


def test_without_a_pose_points_stay_in_ego():
    points = trajectory_points(AHEAD, ROTATION, ACTIONS, SPEED, None)
    np.testing.assert_array_equal(points.position, AHEAD)


def test_a_points_speed_is_the_one_there_and_its_action_the_one_that_follows():
    points = trajectory_points(AHEAD, ROTATION, ACTIONS, SPEED, None)
    assert points.initial_speed == 0
    assert (points.speed[0], points.acceleration[0], points.curvature[0]) == (1.0, 1.0, pytest.approx(0.001))
    assert (points.speed[63], points.acceleration[63]) == (64.0, 63.0)
