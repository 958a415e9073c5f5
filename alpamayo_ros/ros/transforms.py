"""The odometry's transforms: /tf_static tells where base_link is in its child frame; /tf tells others, if asked for.

Or /tf is the odometry itself.
"""

from __future__ import annotations

import logging
from typing import Any

from geometry_msgs.msg import TransformStamped, Vector3
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.odometry import pose_fault
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.transform_odometry import TransformOdometry
from alpamayo_ros.core.types import ConfigurationError, EgoPose
from alpamayo_ros.ros.convert import header_message, pose_message

try:
    from tf2_msgs.msg import TFMessage
except ImportError:  # not among the ROS 2 wheels of PyPI
    TFMessage = None

logger = logging.getLogger(__name__)

STATIC_QOS = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class Transforms:
    """Brings odometry to base_link.

    Args:
        node: to subscribe and publish with.
        settings: odometry and publish_tf.
        child_frame: knows the way to base_link.
        group: of the /tf_static subscription.

    Raises:
        ConfigurationError: odometry.source is tf or publish_tf is set, and tf2_msgs is not installed.
    """

    def __init__(self, node: Node, settings: Settings, child_frame: ChildFrame, group: CallbackGroup) -> None:
        self._child_frame = child_frame
        self._base_frame = settings.odometry.base_frame
        self._publisher: Any = None
        self._is_source = settings.odometry.source == "tf"
        self._odometry = TransformOdometry(settings.odometry.tf_parent, self._base_frame, child_frame)
        if TFMessage is not None:
            add_static = self._odometry.add_static
            node.create_subscription(TFMessage, "/tf_static", add_static, STATIC_QOS, callback_group=group)
        elif self._is_source:
            raise ConfigurationError("odometry.source is 'tf': that needs tf2_msgs, which is not installed")
        if settings.output.publish_tf:
            if TFMessage is None:
                raise ConfigurationError("publish_tf is True: that needs tf2_msgs, which is not installed")
            self._publisher = node.create_publisher(TFMessage, "/tf", 100)

    def label(self, child_frame_id: str) -> str:
        """The child frame's name for the drive: another one when base_link's place in it has changed."""
        return self._child_frame.label(child_frame_id)

    def poses(self, message: Any) -> list[tuple[EgoPose, str, str]]:
        """The poses of base_link in a tf2_msgs/TFMessage of /tf, with their frame and child frame."""
        odometry = self._odometry
        return [(pose, odometry.parent, odometry.child_label) for pose in odometry.poses(message.transforms)]

    @property
    def warnings(self) -> tuple[str, ...]:
        """That the way to base_link isn't known; why /tf gives no poses, where it should."""
        found = (self._odometry.warning if self._is_source else "", self._child_frame.warning)
        return tuple(filter(None, found))

    def base_pose(self, pose: EgoPose, frame_id: str, child_frame_id: str) -> EgoPose:
        """The pose of base_link, from that of the odometry's child frame; published as a transform if asked for."""
        warned, label = self._child_frame.warning, self._child_frame.label(child_frame_id)
        base = self._child_frame.base_pose(pose, child_frame_id)
        if self._child_frame.label(child_frame_id) != label:
            logger.warning("%s is elsewhere in %s now: inputs are forgotten", self._base_frame, child_frame_id)
        if self._child_frame.warning not in ("", warned):
            logger.warning(self._child_frame.warning)
        if self._publisher is not None and pose_fault(pose) is None:
            self._publisher.publish(TFMessage(transforms=[transform_message(base, frame_id, self._base_frame)]))
        return base


def transform_message(pose: EgoPose, frame_id: str, child_frame_id: str) -> TransformStamped:
    """The pose as the transform frame_id -> child_frame_id."""
    message = TransformStamped(header=header_message(pose.stamp_ns, frame_id), child_frame_id=child_frame_id)
    where = pose_message(pose.position, pose.orientation)
    message.transform.translation = Vector3(x=where.position.x, y=where.position.y, z=where.position.z)
    message.transform.rotation = where.orientation
    return message
