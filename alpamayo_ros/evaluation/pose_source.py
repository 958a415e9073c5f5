"""Where a bag's poses of the vehicle come from: an odometry topic, or /tf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.incoming import pose_from_message
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.types import EgoPose
from alpamayo_ros.evaluation.bag import BagMessage, BagReader
from alpamayo_ros.evaluation.rig import resolve_topic

ODOMETRY, TRANSFORMS = "nav_msgs/msg/Odometry", "tf2_msgs/msg/TFMessage"
TF_STATIC_TOPIC = "/tf_static"


@dataclass(frozen=True, eq=False)
class ReceivedPose:
    """A pose of base_link, and the frames that its message named."""

    pose: EgoPose
    frame_id: str
    child_frame_id: str


class PoseSource(Protocol):
    """Turns messages into poses. It holds what messages have said so far: one per pass over a bag."""

    topic: str  # whose messages give poses
    kind: str  # their type
    chosen_by: str  # what names the topic

    @property
    def description(self) -> str:
        """For the report."""

    @property
    def warning(self) -> str:
        """What was noticed; "" for nothing."""

    def prepare(self, bag: BagReader) -> list[str]:
        """Look what there is, in a bag that has the topic; why it can't give poses, in words."""

    def poses(self, message: BagMessage) -> list[ReceivedPose]:
        """What a message on `topic` says."""

    def add_static(self, content: Any) -> None:
        """A tf2_msgs/TFMessage of /tf_static."""

    def fresh(self) -> PoseSource:
        """One that hasn't heard anything."""


class OdometryPoses:
    """Poses and twists of an odometry topic."""

    kind = ODOMETRY
    chosen_by = "parameter odometry.topic"

    def __init__(self, settings: OdometrySettings) -> None:
        self.topic = resolve_topic(settings.topic)
        self._settings = settings
        self._child_frame = ChildFrame(settings)

    @property
    def description(self) -> str:
        """The topic."""
        return f"odometry on {self.topic}"

    @property
    def warning(self) -> str:
        """That the child frame is not the vehicle's, and nothing says where it is."""
        return self._child_frame.warning

    def prepare(self, bag: BagReader) -> list[str]:
        """Nothing to do: an odometry says everything in each message."""
        return []

    def poses(self, message: BagMessage) -> list[ReceivedPose]:
        """One."""
        content = message.message
        pose = self._child_frame.base_pose(pose_from_message(content), content.child_frame_id)
        return [ReceivedPose(pose, content.header.frame_id, self._child_frame.label(content.child_frame_id))]

    def add_static(self, content: Any) -> None:
        """It may say where the child frame is in base_link."""
        self._child_frame.add_static(content)

    def fresh(self) -> OdometryPoses:
        """One that hasn't heard anything."""
        return OdometryPoses(self._settings)
