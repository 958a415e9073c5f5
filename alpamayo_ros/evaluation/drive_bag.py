"""The messages of a drive: camera images, odometry and transforms, on the topics that this package's bags use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from alpamayo_ros.core.rotation import quaternion_from_matrix
from alpamayo_ros.core.types import Array
from alpamayo_ros.evaluation.inputs import NAVIGATION_TOPIC
from alpamayo_ros.evaluation.ros_types import ros_types
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA, CameraModel

ODOM, BASE_LINK = "odom", "base_link"
ODOMETRY_TOPIC, TF_TOPIC, TF_STATIC_TOPIC = "/odometry", "/tf", "/tf_static"
SECOND = 1_000_000_000


def image_topic(camera: str) -> str:
    """Where a camera's CompressedImage goes."""
    return f"/camera/{camera}/image/compressed"


def camera_info_topic(camera: str) -> str:
    """Where its CameraInfo goes."""
    return f"/camera/{camera}/camera_info"


def drive_topics(cameras: Iterable[str]) -> dict[str, str]:
    """All topics of a drive, with their types."""
    topics = {ODOMETRY_TOPIC: "nav_msgs/msg/Odometry", NAVIGATION_TOPIC: "std_msgs/msg/String"}
    topics |= {TF_TOPIC: "tf2_msgs/msg/TFMessage", TF_STATIC_TOPIC: "tf2_msgs/msg/TFMessage"}
    for camera in cameras:
        topics[image_topic(camera)] = "sensor_msgs/msg/CompressedImage"
        topics[camera_info_topic(camera)] = "sensor_msgs/msg/CameraInfo"
    return topics


def optical_frame(camera: str) -> str:
    """The frame of its images: x right, y down, z forward (REP-103)."""
    return f"{camera}_optical_frame"


class MessageSink(Protocol):
    """Takes messages: a bag that is being written, or topics."""

    def write(self, topic: str, message: Any, receive_ns: int) -> None:
        """An instance of one of `ros_types().types`, and when it is received."""


class DriveBag:
    """Writes a drive into an open bag, or another sink. Receive times are the stamps, unless they are given."""

    def __init__(self, bag: MessageSink) -> None:
        self._bag = bag

    def image(self, camera: str, stamp_ns: int, data: bytes, form: str, receive_ns: int | None = None) -> None:
        """A camera's JPEG or PNG file; `form` as CompressedImage.format wants it."""
        message = _new(
            "sensor_msgs/msg/CompressedImage",
            header=_header(stamp_ns, optical_frame(camera)),
            format=form,
            data=np.frombuffer(data, np.uint8),
        )
        self._bag.write(image_topic(camera), message, stamp_ns if receive_ns is None else receive_ns)

    def camera_info(self, camera: str, stamp_ns: int, model: CameraModel, receive_ns: int | None = None) -> None:
        """A camera's calibration. Stamped as its images are."""
        fx, fy, cx, cy = model.focal_x, model.focal_y, model.center_x, model.center_y
        message = _new(
            "sensor_msgs/msg/CameraInfo",
            header=_header(stamp_ns, optical_frame(camera)),
            height=model.height,
            width=model.width,
            distortion_model=model.distortion_model,
            d=np.array(model.distortion, np.float64),
            k=np.array([fx, 0, cx, 0, fy, cy, 0, 0, 1], np.float64),
            r=np.eye(3).ravel(),
            p=np.array([fx, 0, cx, 0, 0, fy, cy, 0, 0, 0, 1, 0], np.float64),
            binning_x=0,
            binning_y=0,
            roi=_new("sensor_msgs/msg/RegionOfInterest", x_offset=0, y_offset=0, height=0, width=0, do_rectify=False),
        )
        self._bag.write(camera_info_topic(camera), message, stamp_ns if receive_ns is None else receive_ns)

    def pose(self, stamp_ns: int, position: Array, rotation: Array, linear: Array, angular: Array) -> None:
        """base_link's pose in odom and its twist in base_link ([3], [3, 3], [3] m/s, [3] rad/s), as odometry and tf."""
        no_covariance = np.zeros(36)
        message = _new(
            "nav_msgs/msg/Odometry",
            header=_header(stamp_ns, ODOM),
            child_frame_id=BASE_LINK,
            pose=_new(
                "geometry_msgs/msg/PoseWithCovariance",
                pose=_new(
                    "geometry_msgs/msg/Pose",
                    position=_xyz("geometry_msgs/msg/Point", position),
                    orientation=_quaternion(rotation),
                ),
                covariance=no_covariance,
            ),
            twist=_new(
                "geometry_msgs/msg/TwistWithCovariance",
                twist=_new(
                    "geometry_msgs/msg/Twist",
                    linear=_xyz("geometry_msgs/msg/Vector3", linear),
                    angular=_xyz("geometry_msgs/msg/Vector3", angular),
                ),
                covariance=no_covariance,
            ),
        )
        self._bag.write(ODOMETRY_TOPIC, message, stamp_ns)
        self._bag.write(TF_TOPIC, _transforms(stamp_ns, [(ODOM, BASE_LINK, position, rotation)]), stamp_ns)

    def navigation(self, stamp_ns: int, text: str) -> None:
        """What the navigation system says from now on; "" for nothing."""
        self._bag.write(NAVIGATION_TOPIC, _new("std_msgs/msg/String", data=text), stamp_ns)

    def mountings(self, stamp_ns: int, mountings: Mapping[str, tuple[Array, Array]]) -> None:
        """Where each camera sits in base_link: position [3] m and rotation [3, 3], x being where it looks."""
        links = []
        for camera, (position, rotation) in mountings.items():
            links.append((BASE_LINK, camera, position, rotation))
            links.append((camera, optical_frame(camera), np.zeros(3), OPTICAL_IN_CAMERA))
        self._bag.write(TF_STATIC_TOPIC, _transforms(stamp_ns, links), stamp_ns)


def _new(kind: str, **fields: Any) -> Any:
    return ros_types().types[kind](**fields)


def _header(stamp_ns: int, frame: str) -> Any:
    seconds, nanoseconds = divmod(stamp_ns, SECOND)
    stamp = _new("builtin_interfaces/msg/Time", sec=seconds, nanosec=nanoseconds)
    return _new("std_msgs/msg/Header", stamp=stamp, frame_id=frame)


def _xyz(kind: str, values: Array) -> Any:
    x, y, z = map(float, values)
    return _new(kind, x=x, y=y, z=z)


def _quaternion(rotation: Array) -> Any:
    x, y, z, w = map(float, quaternion_from_matrix(rotation))
    return _new("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)


def _transforms(stamp_ns: int, links: list[tuple[str, str, Array, Array]]) -> Any:
    transforms = [
        _new(
            "geometry_msgs/msg/TransformStamped",
            header=_header(stamp_ns, parent),
            child_frame_id=child,
            transform=_new(
                "geometry_msgs/msg/Transform",
                translation=_xyz("geometry_msgs/msg/Vector3", position),
                rotation=_quaternion(rotation),
            ),
        )
        for parent, child, position, rotation in links
    ]
    return _new("tf2_msgs/msg/TFMessage", transforms=transforms)
