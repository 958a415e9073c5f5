from array import array

import numpy as np
import pytest
from nav_msgs.msg import Odometry
from scenes import observation
from sensor_msgs.msg import CompressedImage, Image

from alpamayo_ros.core.incoming import image_arguments, pose_from_message, stamp_ns
from alpamayo_ros.core.trajectory_points import trajectory_points
from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros import convert

T0 = 1_700_000_000_950_000_000


def points():
    prediction = NullEngine().predict(observation(T0, speed=10.0), SamplingOptions(num_samples=2))
    arrays = (prediction.xyz[1], prediction.rotation[1], prediction.actions[1], prediction.speed[1])
    return trajectory_points(*arrays, observation(T0, speed=10.0).pose)


def test_stamps_survive_to_the_nanosecond():
    for ns in (0, 1, 999_999_999, 1_000_000_000, 1_700_000_000_123_456_789):
        assert stamp_ns(convert.time_message(ns)) == ns


def test_pose_i_of_a_path_is_stamped_one_step_later_exactly_and_the_header_with_t0():
    path = convert.path_message(points(), T0, "odom")
    assert stamp_ns(path.header.stamp) == T0
    assert [stamp_ns(p.header.stamp) - T0 for p in path.poses] == [(i + 1) * 100_000_000 for i in range(64)]
    assert {p.header.frame_id for p in path.poses} == {"odom"}


def test_times_from_start_are_not_cut_by_rounding():
    trajectory = convert.trajectory_message(points(), T0, "odom", valid_ns=2_000_000_000)
    durations = [(p.time_from_start.sec, p.time_from_start.nanosec) for p in trajectory.points]
    assert durations[0] == (0, 100_000_000)
    assert durations[42] == (4, 300_000_000)
    assert durations[63] == (6, 400_000_000)
    assert stamp_ns(trajectory.valid_until) == T0 + 2_000_000_000


def test_every_published_quaternion_has_length_one():
    for pose in convert.path_message(points(), T0, "odom").poses:
        q = pose.pose.orientation
        assert q.x**2 + q.y**2 + q.z**2 + q.w**2 == pytest.approx(1, abs=1e-12)


def test_an_empty_trajectory_says_why_and_is_valid_no_longer():
    message = convert.empty_trajectory_message(T0, "odom", "camera_stale")
    assert (list(message.points), message.reason) == ([], "camera_stale")
    assert stamp_ns(message.valid_until) == T0


def test_a_compressed_image_is_handed_on_without_a_copy():
    message = CompressedImage(format="jpeg", data=array("B", b"\xff\xd8 and so on"))
    message.header.stamp = convert.time_message(T0)
    image = image_arguments(message)
    assert (image["stamp_ns"], image["encoding"]) == (T0, "jpeg")
    assert bytes(image["data"]) == b"\xff\xd8 and so on"
    assert np.shares_memory(np.frombuffer(image["data"], np.uint8), np.frombuffer(message.data, np.uint8))


def test_a_raw_image_keeps_its_padded_rows():
    message = Image(encoding="bgr8", height=2, width=2, step=8, is_bigendian=1, data=array("B", bytes(range(16))))
    image = image_arguments(message)
    assert [image[name] for name in ("height", "width", "step", "is_bigendian")] == [2, 2, 8, True]
    assert bytes(image["data"]) == bytes(range(16))


def test_odometry_becomes_a_pose_with_its_twist():
    message = Odometry()
    message.header.stamp = convert.time_message(T0)
    message.pose.pose.position.x, message.pose.pose.orientation.w = 4.0, 0.0
    message.pose.pose.orientation.z = 1.0
    message.twist.twist.linear.x, message.twist.twist.angular.z = 3.0, 0.2
    pose = pose_from_message(message)
    assert pose.stamp_ns == T0
    assert pose.position.tolist() == [4, 0, 0]
    assert pose.orientation.tolist() == [0, 0, 1, 0]
    assert pose.linear_velocity.tolist() == [3, 0, 0]
    assert pose.angular_velocity.tolist() == [0, 0, 0.2]
