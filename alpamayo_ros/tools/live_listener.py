"""The ROS side of a live evaluation: hears the node, the odometry and the anchor camera, shows what was driven."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry, Path
from rcl_interfaces.srv import GetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.live import LiveEvaluation, ScoredTick
from alpamayo_ros.evaluation.live_report import Heard, LiveReport
from alpamayo_ros.msg import InferenceStatus, Trajectory, TrajectoryCandidates
from alpamayo_ros.ros.convert import timed_path
from alpamayo_ros.ros.topics import topic_qos, type_name
from alpamayo_ros.ros.transforms import STATIC_QOS, TFMessage
from alpamayo_ros.sensors.calibration import camera_info_topic

DEPTH = 1000  # of subscriptions: nothing may be lost while a path is scored
IMAGE_DEPTH = 10
POLL, SHOWN, DRAINED = 0.05, 5.0, 0.5  # s
RELIABILITY = {"best_effort": ReliabilityPolicy.BEST_EFFORT, "reliable": ReliabilityPolicy.RELIABLE}
ENGINE_FACTS: dict[str, Callable[[str], Any]] = {  # of the diagnostics, with what their text stands for
    **dict.fromkeys(("engine", "model", "device", "dtype", "quantization", "checkpoint_hash"), str),
    "parameters": int,
    "trained": "True".__eq__,
}
NAME = "alpamayo_evaluation"


class LiveListener:
    """A ROS node that feeds a live evaluation.

    Args:
        options: of the command line.
        settings: of the node's rig.
        live: gets the messages.
        report: gets the scored ticks and the anchor camera's pictures.
        context: of rclpy, initialised.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        settings: Settings,
        live: LiveEvaluation,
        report: LiveReport,
        context: Context,
    ) -> None:
        self._options, self._settings, self._live, self._report = options, settings, live, report
        self._node: Any = rclpy.create_node(NAME, context=context)
        self._executor = SingleThreadedExecutor(context=context)
        self._executor.add_node(self._node)
        self._name = f"/{options.node.strip('/')}"
        self.heard = Heard()
        self._odometry_came: float | None = None  # by the steady clock
        self._client: Any = self._node.create_client(GetParameters, f"{self._name}/get_parameters")
        self._answer: Any = None
        self._driven: Any = self._node.create_publisher(Path, f"{self._name}/evaluation/driven_path", topic_qos(1))
        self._subscribe_node()
        self._subscribe_vehicle()
        if options.pictures:
            self._subscribe_camera()

    def listen(self, stop: threading.Event) -> None:
        """Take messages until `stop` is set, or as the options say."""
        started = shown = time.monotonic()
        print(f"listening to {self._name}", file=sys.stderr, flush=True)
        while not stop.is_set():
            self._executor.spin_once(timeout_sec=POLL)
            for scored in self._live.due():
                self._add(scored)
            self._ask_parameters()
            now = time.monotonic()
            if self._options.duration is not None and now - started >= self._options.duration:
                break
            silence, came = self._options.silence, self._odometry_came
            if silence is not None and came is not None and now - came >= silence:
                break
            if now - shown >= SHOWN:
                shown = now
                print(f"{len(self._report.records)} paths scored after {now - started:.0f} s", file=sys.stderr)
        last = time.monotonic() + DRAINED
        while time.monotonic() < last:  # what has come is taken
            self._executor.spin_once(timeout_sec=0)
        for scored in self._live.finish():
            self._report.add(scored)

    def close(self) -> None:
        """End the node."""
        self._executor.shutdown()
        self._node.destroy_node()

    def _subscribe_node(self) -> None:
        def on_trajectory(message: Any) -> None:
            self._live.add_trajectory(message)
            if self._options.pictures:
                self._report.frames.want(stamp_ns(message.header.stamp))

        def on_status(message: Any) -> None:
            self.heard.trained = bool(message.trained)
            self._live.add_status(message)

        reliable = topic_qos(DEPTH)
        self._subscribe(Trajectory, f"{self._name}/output/trajectory", on_trajectory, reliable)
        self._subscribe(TrajectoryCandidates, f"{self._name}/output/candidates", self._live.add_candidates, reliable)
        self._subscribe(InferenceStatus, f"{self._name}/output/status", on_status, reliable)
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, reliable)

    def _subscribe_vehicle(self) -> None:
        def on_odometry(message: Any) -> None:
            self._odometry_came = time.monotonic()
            self._live.add_odometry(message)

        def on_transforms(message: Any) -> None:
            if self._live.add_transforms(message):
                self._odometry_came = time.monotonic()

        odometry = self._settings.odometry
        qos = topic_qos(DEPTH, RELIABILITY[odometry.reliability])
        if odometry.source == "topic":
            self._subscribe(Odometry, self._full(odometry.topic), on_odometry, qos)
        elif TFMessage is None:
            raise ConfigurationError("odometry.source is 'tf': that needs tf2_msgs, which is not installed")
        else:
            self._subscribe(TFMessage, odometry.pose_topic, on_transforms, qos)
        if TFMessage is None:  # not everywhere: odometry.child_to_base and overlay.camera_pose say where things are
            return

        def on_static(message: Any) -> None:
            self._live.add_static(message)
            self._report.calibration.add_static(message)

        self._node.create_subscription(TFMessage, "/tf_static", on_static, STATIC_QOS)

    def _subscribe_camera(self) -> None:
        camera = self._settings.camera(self._settings.anchor)
        kind = CompressedImage if camera.transport == "compressed" else Image
        qos = topic_qos(IMAGE_DEPTH, RELIABILITY[camera.reliability])
        self._subscribe(kind, self._full(camera.topic), self._report.frames.add, qos)
        calibration = self._report.calibration
        if calibration.needs_camera_info or calibration.needs_transforms:
            topic = self._settings.overlay.camera_info or camera_info_topic(camera.topic, camera.transport)
            qos = topic_qos(1, ReliabilityPolicy.BEST_EFFORT)
            self._node.create_subscription(CameraInfo, self._full(topic), calibration.add_camera_info, qos)

    def _subscribe(self, kind: Any, topic: str, take: Callable[[Any], None], qos: QoSProfile) -> None:
        """And count what comes."""
        self.heard.topics[topic] = type_name(kind)

        def counted(message: Any) -> None:
            self.heard.messages[topic] = self.heard.messages.get(topic, 0) + 1
            take(message)

        self._node.create_subscription(kind, topic, counted, qos)

    def _full(self, topic: str) -> str:
        """A topic of the settings, as the node resolves it."""
        if topic.startswith("~/"):
            return f"{self._name}/{topic[2:]}"
        return topic if topic.startswith("/") else f"{self._name.rpartition('/')[0]}/{topic}"

    def _on_diagnostics(self, message: Any) -> None:
        for status in message.status:
            if status.name == f"{self._name[1:]}: engine":
                told = {pair.key: pair.value for pair in status.values}
                if "engine" in told:  # else it is being loaded
                    self.heard.engine = {name: kind(told[name]) for name, kind in ENGINE_FACTS.items() if name in told}

    def _ask_parameters(self) -> None:
        """Ask the node once for its parameters, as soon as it is there."""
        names = list(self._settings.flat())
        if self._answer is None:
            if self._client.service_is_ready():
                self._answer = self._client.call_async(GetParameters.Request(names=names))
        elif self._answer.done() and not self.heard.parameters:
            told = zip(names, map(parameter_value_to_python, self._answer.result().values), strict=False)
            self.heard.parameters = {
                name: value if isinstance(value, str | bool | int | float) else list(value)
                for name, value in told
                if value is not None
            }

    def _add(self, scored: ScoredTick) -> None:
        self._report.add(scored)
        observation = scored.tick.observation
        if observation is not None and self._driven.get_subscription_count():
            poses = scored.future.in_odometry(observation.pose)
            self._driven.publish(timed_path(*poses, observation.t0_ns, self._live.odometry_frame))
