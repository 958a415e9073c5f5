"""~/output/overlay/compressed: the anchor camera's picture with the paths drawn on it and the reasoning below.

Pictures are made in a thread of their own, after the path has gone out, and only while somebody listens: a picture
that is not ready when the next tick comes is the last one that waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from rclpy.callback_groups import CallbackGroup
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.lifecycle import LifecycleNodeMixin
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, CompressedImage

from alpamayo_ros.core.select import Chosen
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import AlpamayoError, Frame, Observation, Prediction
from alpamayo_ros.ros.convert import header_message
from alpamayo_ros.ros.topics import Endpoint, topic_qos, type_name
from alpamayo_ros.ros.transforms import STATIC_QOS, TFMessage
from alpamayo_ros.sensors.calibration import Calibration, camera_info_topic
from alpamayo_ros.sensors.decode import decode
from alpamayo_ros.sensors.overlay import Picture, draw_paths, write_below

logger = logging.getLogger(__name__)

TOPIC = "~/output/overlay/compressed"
QOS = topic_qos(1, ReliabilityPolicy.BEST_EFFORT)
JPEG_QUALITY = 85
STOP_TIMEOUT = 5.0  # s for the last picture


@dataclass(frozen=True, eq=False)
class _Job:
    frame: Frame
    prediction: Prediction
    chosen: Chosen


class Overlay:
    """Draws ticks. Created while configuring, since it publishes by a lifecycle publisher.

    Args:
        node: the lifecycle node.
        settings: of the overlay, the anchor camera and the base frame.
        group: of the subscriptions.
    """

    def __init__(self, node: LifecycleNodeMixin, settings: Settings, group: CallbackGroup) -> None:
        self._node: Any = node
        self._settings = settings
        self._calibration = Calibration(settings.overlay, settings.odometry.base_frame)
        self._said = ""  # the last trouble that was logged
        self._changed = threading.Condition()
        self._job: _Job | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="overlay", daemon=True)
        with ExitStack() as undo:
            self._publisher: Any = node.create_lifecycle_publisher(CompressedImage, TOPIC, QOS)
            undo.callback(node.destroy_lifecycle_publisher, self._publisher)
            self._subscribe(group, undo)
            self._thread.start()
            undo.callback(self._end_thread)
            self._undo = undo.pop_all()

    @property
    def endpoint(self) -> Endpoint:
        """Its topic."""
        return Endpoint(self._publisher.topic_name, type_name(CompressedImage), QOS)

    def submit(self, observation: Observation, prediction: Prediction, chosen: Chosen) -> None:
        """Draw this tick, and none that still waits. Returns at once."""
        frames = observation.frames.get(self._settings.camera(self._settings.anchor).index)
        if not frames or not self._publisher.get_subscription_count():
            return
        with self._changed:
            self._job = _Job(frames[-1], prediction, chosen)
            self._changed.notify()

    def close(self) -> None:
        """End the thread and free the topics."""
        self._undo.close()

    def _end_thread(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join(STOP_TIMEOUT)

    def _subscribe(self, group: CallbackGroup, undo: ExitStack) -> None:
        def hear(kind: type, topic: str, take: Callable[[Any], None], qos: QoSProfile, **options: Any) -> None:
            subscription = self._node.create_subscription(kind, topic, take, qos, callback_group=group, **options)
            undo.callback(self._node.destroy_subscription, subscription)

        camera, calibration = self._settings.camera(self._settings.anchor), self._calibration
        if calibration.needs_camera_info or calibration.needs_transforms:
            topic = self._settings.overlay.camera_info or camera_info_topic(camera.topic, camera.transport)
            events = SubscriptionEventCallbacks(use_default_callbacks=False)  # else they warn of the other one's QoS
            # latched or not: each publisher is heard by one of the two, and hearing it twice does no harm
            for reliability, durability in (
                (ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE),
                (ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL),
            ):
                qos = topic_qos(1, reliability, durability)
                hear(CameraInfo, topic, calibration.add_camera_info, qos, event_callbacks=events)
        if calibration.needs_transforms:
            if TFMessage is None:
                logger.warning("overlay.camera_pose is not set, and without tf2_msgs /tf_static can't be heard")
            else:
                hear(TFMessage, "/tf_static", calibration.add_static, STATIC_QOS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._job is not None or self._stopped)
                if self._stopped:
                    return
                job, self._job = self._job, None
            assert job is not None
            try:
                picture = self._draw(job)
                self._trouble(self._calibration.missing)
                if picture is not None and not self._stopped:
                    self._publish(picture, job.frame.stamp_ns)
            except AlpamayoError as error:
                self._trouble(str(error))
            except Exception:  # a picture is never worth more than the node
                logger.exception("the overlay could not be drawn")

    def _draw(self, job: _Job) -> Picture | None:
        camera = self._calibration.model()
        if camera is None:
            return None
        picture = decode(job.frame)
        width = self._settings.overlay.width
        if picture.shape[1] > width:
            size = (width, round(picture.shape[0] * width / picture.shape[1]))
            picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
        drawn = draw_paths(picture, camera, job.chosen.xyz, list(job.prediction.xyz))
        return write_below(drawn, job.prediction.reasoning[max(job.chosen.index, 0)])

    def _publish(self, picture: Picture, stamp_ns: int) -> None:
        done, data = cv2.imencode(
            ".jpg", cv2.cvtColor(picture, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
        )
        if not done:
            raise RuntimeError(f"OpenCV can't encode a picture of shape {picture.shape}")
        message = CompressedImage(header=header_message(stamp_ns, ""), format="jpeg")
        message.data.frombytes(data.tobytes())
        self._publisher.publish(message)

    def _trouble(self, text: str) -> None:
        """Log what keeps the overlay from being drawn, once until it is something else."""
        if text and text != self._said:
            logger.warning("no overlay: %s", text)
        self._said = text
