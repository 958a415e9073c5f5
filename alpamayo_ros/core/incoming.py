"""What messages say, as the core's data. Nothing is checked here: the builder and the decoder refuse by name.

A message is anything that has the fields of its ROS type, such as rclpy's and rosbags' messages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.odometry import pose_fault
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.types import Array, EgoPose

SECOND_NS = 1_000_000_000


def stamp_ns(stamp: Any) -> int:
    """A builtin_interfaces/Time in nanoseconds."""
    return int(stamp.sec) * SECOND_NS + int(stamp.nanosec)


def image_arguments(message: Any) -> dict[str, Any]:
    """A sensor_msgs Image or CompressedImage as the arguments of ObservationBuilder.add_frame; no bytes are copied."""
    arguments = {"stamp_ns": stamp_ns(message.header.stamp), "data": memoryview(message.data)}
    if hasattr(message, "format"):  # a CompressedImage
        return {**arguments, "encoding": message.format}
    return {
        **arguments,
        "encoding": message.encoding,
        "height": message.height,
        "width": message.width,
        "step": message.step,
        "is_bigendian": bool(message.is_bigendian),
    }


def pose_from_message(message: Any) -> EgoPose:
    """A nav_msgs/Odometry as the pose and twist of its child frame."""
    return EgoPose(
        stamp_ns=stamp_ns(message.header.stamp),
        position=_vector(message.pose.pose.position),
        orientation=_quaternion(message.pose.pose.orientation),
        linear_velocity=_vector(message.twist.twist.linear),
        angular_velocity=_vector(message.twist.twist.angular),
    )


def pose_from_transform(transform: Any) -> EgoPose:
    """A geometry_msgs/TransformStamped as its child frame's pose in its header's frame."""
    return EgoPose(
        stamp_ns=stamp_ns(transform.header.stamp),
        position=_vector(transform.transform.translation),
        orientation=_quaternion(transform.transform.rotation),
    )


def mounting_from_transform(transform: Any) -> Mounting | None:
    """A geometry_msgs/TransformStamped as its child frame's place in its header's frame; None if it is none."""
    position, orientation = _vector(transform.transform.translation), _quaternion(transform.transform.rotation)
    if pose_fault(EgoPose(0, position, orientation)) is not None:
        return None
    return Mounting(position, matrix_from_quaternion(orientation))


def _vector(message: Any) -> Array:
    return np.array([message.x, message.y, message.z])


def _quaternion(message: Any) -> Array:
    return np.array([message.x, message.y, message.z, message.w])
