"""The node's input topics: subscriptions, and what is known of each stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nav_msgs.msg import Odometry
from rclpy.callback_groups import CallbackGroup
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from alpamayo_ros.core.incoming import image_arguments, pose_from_message
from alpamayo_ros.core.settings import CameraSettings, Settings
from alpamayo_ros.core.types import EgoPose
from alpamayo_ros.ros import serialized
from alpamayo_ros.ros.drive import Drive
from alpamayo_ros.ros.report import Rate
from alpamayo_ros.ros.topics import Endpoint, input_topics, topic_qos, type_name
from alpamayo_ros.ros.transforms import TFMessage, Transforms

RELIABILITY = {"best_effort": ReliabilityPolicy.BEST_EFFORT, "reliable": ReliabilityPolicy.RELIABLE}
MESSAGE = {"raw": Image, "compressed": CompressedImage}


@dataclass(frozen=True)
class Stream:
    """One input topic, and how fast messages come."""

    endpoint: Endpoint
    rate: Rate


class Inputs:
    """Subscribes while the node is active.

    Args:
        node: to subscribe with.
        settings: which topics.
        drive: takes what comes.
        transforms: brings the odometry's poses to base_link.
        group: of all callbacks.
    """

    def __init__(
        self, node: Node, settings: Settings, drive: Drive, transforms: Transforms, group: CallbackGroup
    ) -> None:
        self._node = node
        self._settings = settings
        self._drive = drive
        self._transforms = transforms
        self._group = group
        self._subscriptions: list[Any] = []
        self._heard: deque[int] = deque(maxlen=32)  # source times of navigation texts
        self._topics = input_topics(node, settings)
        self.cameras = {camera.name: Stream(self._camera_endpoint(camera), Rate()) for camera in settings.cameras}
        odometry = settings.odometry
        qos = topic_qos(odometry.depth, RELIABILITY[odometry.reliability])
        kind = Odometry if odometry.source == "topic" else TFMessage
        shared = odometry.source == "tf"
        topic = self._topics["odometry.topic"]
        self.odometry = Stream(Endpoint(topic, type_name(kind), qos, shared=shared), Rate())

    def subscribe(self) -> None:
        """Start listening.

        Raises:
            RuntimeError: a topic can't be subscribed; the message names it.
        """
        # first, since the executor serves the oldest subscription first: after a hold-up, poses are there before frames
        odometry, qos = self._settings.odometry, self.odometry.endpoint.qos
        if odometry.source == "tf":
            self._subscribe(TFMessage, odometry.pose_topic, self._on_transforms, qos)
        else:
            self._subscribe(Odometry, odometry.pose_topic, self._on_odometry, qos)
        for camera in self._settings.cameras:
            stream = self.cameras[camera.name]
            self._subscribe(
                MESSAGE[camera.transport], camera.topic, self._on_frame(camera.name, stream.rate), stream.endpoint.qos
            )
        # a volatile publisher never matches a transient-local subscription, and a volatile one misses latched texts
        for durability in (DurabilityPolicy.VOLATILE, DurabilityPolicy.TRANSIENT_LOCAL):
            qos = topic_qos(1, durability=durability)
            self._subscribe(String, "~/input/navigation", self._on_navigation, qos, warn=False)

    def unsubscribe(self) -> None:
        """Stop listening."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()

    def _subscribe(
        self, kind: type, topic: str, callback: Callable[..., None], qos: QoSProfile, warn: bool = True
    ) -> None:
        events = SubscriptionEventCallbacks(use_default_callbacks=warn)  # they log incompatible QoS
        try:
            subscription = self._node.create_subscription(
                kind, topic, callback, qos, callback_group=self._group, event_callbacks=events
            )
        except Exception as error:
            raise RuntimeError(f"can't subscribe {topic} as {type_name(kind)}: {error}") from error
        self._subscriptions.append(subscription)

    def _camera_endpoint(self, camera: CameraSettings) -> Endpoint:
        qos = topic_qos(camera.depth, RELIABILITY[camera.reliability])
        topic = self._topics[f"cameras.{camera.name}.topic"]
        remedy = f"see parameter cameras.{camera.name}.transport"
        return Endpoint(topic, type_name(MESSAGE[camera.transport]), qos, remedy)

    def _on_frame(self, camera: str, rate: Rate) -> Callable[[Any], None]:
        def on_frame(message: Image | CompressedImage) -> None:
            rate.count()
            self._drive.add_frame(camera, image_arguments(message))

        return on_frame

    def _on_odometry(self, message: Odometry) -> None:
        frame_id, child_frame_id = message.header.frame_id, message.child_frame_id
        pose = self._transforms.base_pose(pose_from_message(message), frame_id, child_frame_id)
        self._add_pose(pose, frame_id, self._transforms.label(child_frame_id))

    def _on_transforms(self, message: Any) -> None:
        for pose in self._transforms.poses(message):
            self._add_pose(*pose)

    def _add_pose(self, pose: EgoPose, frame_id: str, child_frame_id: str) -> None:
        self.odometry.rate.count()
        serialized.warm_up(frame_id)  # with the first pose in this frame, and not while the first tick waits for it
        self._drive.add_pose(pose, frame_id, child_frame_id)

    def _on_navigation(self, message: String, info: dict[str, int]) -> None:
        # a transient-local publisher matches both subscriptions; its message has one source time in both
        if info["source_timestamp"] not in self._heard:
            self._heard.append(info["source_timestamp"])
            self._drive.set_navigation(message.data.strip())
