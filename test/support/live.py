"""A node under test in this process, and a driver that plays a vehicle to it, over DDS in a domain of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import cv2
import numpy as np
from alpamayo_ros.msg import InferenceStatus, Reasoning, Trajectory, TrajectoryCandidates
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from nav_msgs.msg import Odometry, Path
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import String
from visualization_msgs.msg import MarkerArray

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros.convert import time_message
from alpamayo_ros.ros.executor import serve
from alpamayo_ros.ros.node import AlpamayoNode

STEP_NS = 100_000_000
JPEG = cv2.imencode(".jpg", np.full((24, 32, 3), 90, np.uint8))[1].tobytes()
FRONT: Mapping[str, Any] = {
    "cameras.front_wide.topic": "/front",
    "odometry.topic": "/odometry",
    "sampling.num_samples": 2,
    # a drive is played faster than the clock, on a machine that may be busy, and nothing of it may get lost
    "future_tolerance": 10.0,
    "cameras.front_wide.reliability": "reliable",
    "cameras.front_wide.depth": 100,
    "odometry.reliability": "reliable",
    "max_input_age": 5.0,
    "max_odometry_age": 5.0,
    "max_result_age": 5.0,
}
VOLATILE = QoSProfile(depth=1)
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
OUTPUTS: Mapping[str, type] = {
    "path": Path,
    "trajectory": Trajectory,
    "candidates": TrajectoryCandidates,
    "reasoning": String,
    "reasoning_stamped": Reasoning,
    "markers": MarkerArray,
    "status": InferenceStatus,
}


def wait_until(condition: Callable[[], Any], what: Callable[[], str] | str, timeout: float = 8.0) -> Any:
    """What the condition gives, as soon as it is true; `what` says what was waited for, at the end."""
    deadline = time.monotonic() + timeout
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what() if callable(what) else what}")
        time.sleep(0.005)
    return result


class Driver(Node):
    """Publishes a drive straight along x, and keeps what the node under test sends."""

    def __init__(
        self,
        context: Context,
        topics: Mapping[str, str] | None = None,
        odometry: str = "/odometry",
        speed: float = 10.0,
        reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE,
    ) -> None:
        super().__init__("driver", context=context, enable_rosout=False)
        qos = QoSProfile(depth=100, reliability=reliability)
        self.speed = speed
        self._origin_ns = self._next_ns = time.time_ns()
        self.cameras = {
            name: self.create_publisher(CompressedImage, topic, qos)
            for name, topic in (topics or {"front_wide": "/front"}).items()
        }
        self.odometry = self.create_publisher(Odometry, odometry, qos)
        self.received: dict[str, list[Any]] = {name: [] for name in OUTPUTS}
        self.diagnostics: dict[str, DiagnosticStatus] = {}
        for name, kind in OUTPUTS.items():
            self.create_subscription(kind, f"/alpamayo/output/{name}", self.received[name].append, 100)
        self.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        self.diagnostics.update({status.name: status for status in message.status})

    def connect(self) -> None:
        """Wait until node and driver hear each other."""
        publishers = [*self.cameras.values(), self.odometry]
        wait_until(lambda: all(p.get_subscription_count() for p in publishers), "the node to subscribe")
        wait_until(lambda: all(self.count_publishers(f"/alpamayo/output/{n}") for n in OUTPUTS), "its publishers")

    def send_frame(self, ns: int, camera: str = "front_wide", data: bytes = JPEG) -> None:
        message = CompressedImage(format="jpeg")
        message.header.stamp = time_message(ns)
        message.data.frombytes(data)
        self.cameras[camera].publish(message)

    def send_odometry(self, ns: int, frame_id: str = "odom", child_frame_id: str = "base_link", **pose: float) -> None:
        message = Odometry(child_frame_id=child_frame_id)
        message.header.frame_id = frame_id
        message.header.stamp = time_message(ns)
        message.pose.pose.position.x = pose.get("x", self.x(ns))
        message.pose.pose.orientation.z = pose.get("z", 0.0)
        message.pose.pose.orientation.w = pose.get("w", 1.0)
        message.twist.twist.linear.x = self.speed
        self.odometry.publish(message)

    def x(self, ns: int) -> float:
        """Where the vehicle is at that time, m."""
        return self.speed * (ns - self._origin_ns) * 1e-9

    def play(self, seconds: float = 2.2, start_ns: int | None = None, data: bytes = JPEG, **odometry: Any) -> int:
        """Drive on for so long, faster than the clock; returns the stamp of the last frame.

        The drive goes on from where it was, or begins at `start_ns`, the first time now.
        """
        if start_ns is not None:
            self._next_ns = start_ns
        for _ in range(round(seconds * 10) + 1):
            ns, self._next_ns = self._next_ns, self._next_ns + STEP_NS
            self.send_odometry(ns, **odometry)
            for camera in self.cameras:
                self.send_frame(ns, camera, data)
            time.sleep(0.008)  # not all at once: a frame must not wait for its pose for longer than wait_timeout
        return ns

    def play_in_real_time(self, seconds: float) -> None:
        """Drive on for so long, as fast as the clock: for a node that refuses stamps from the future."""
        for _ in range(round(seconds * 10)):
            self.play(seconds=0.0, start_ns=time.time_ns())
            time.sleep(0.09)

    def wait_for(self, output: str, condition: Callable[[Any], Any] = lambda _: True, timeout: float = 8.0) -> Any:
        """The first message on that output that satisfies the condition, from those that came already on."""
        found = lambda: next((m for m in self.received[output] if condition(m)), None)  # noqa: E731
        return wait_until(found, lambda: f"a fitting message on {output}; last: {self.received[output][-1:]}", timeout)

    def wait_for_skip(self, reason: str, timeout: float = 8.0) -> InferenceStatus:
        """The first status with that skip reason."""
        return self.wait_for("status", lambda status: status.skip_reason == reason, timeout)

    def wait_for_diagnostic(self, name: str, text: str, timeout: float = 8.0) -> DiagnosticStatus:
        """That diagnostic, once its message contains the text."""
        found = lambda: (s := self.diagnostics.get(f"alpamayo: {name}")) is not None and text in s.message and s  # noqa: E731
        return wait_until(found, lambda: f"{text!r} in diagnostic {name}; last: {self.diagnostics}", timeout)


class Live:
    """Starts nodes in one context, each with its executor, and ends them in order."""

    def __init__(self, domain: int) -> None:
        self.context = Context()
        self.context.init(args=[], domain_id=domain)
        self._stopping = threading.Event()
        self._running: list[tuple[Node, threading.Thread]] = []

    def node(
        self, make_engine: Callable[[Settings], Engine] = lambda _: NullEngine(), start: bool = True, **parameters: Any
    ) -> AlpamayoNode:
        """A node under test with the parameters of FRONT and these; activated unless start is False."""
        values = {**FRONT, **parameters.pop("parameters", {}), **parameters}
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        node = AlpamayoNode(
            make_engine, context=self.context, parameter_overrides=overrides, use_global_arguments=False
        )
        self._spin(node)
        if start:
            node.autostart()
            assert node.state == "active"
        return node

    def driver(self, connect: bool = True, **options: Any) -> Driver:
        """A driver; connected to the node unless connect is False."""
        driver = Driver(self.context, **options)
        self._spin(driver)
        if connect:
            driver.connect()
            self._wait_for_readers()
        return driver

    def _wait_for_readers(self) -> None:
        """Until the nodes under test know everybody who listens: what they send before is lost."""
        nodes = [node for node, _ in self._running]
        drivers = sum(isinstance(node, Driver) for node in nodes)
        senders = [node for node in nodes if isinstance(node, AlpamayoNode)]
        topics = [f"/alpamayo/output/{name}" for name in OUTPUTS]
        wait_until(
            lambda: all(node.count_subscribers(topic) >= drivers for node in senders for topic in topics),
            "the node to know who listens",
        )

    def call(self, kind: type, name: str, request: Any, timeout: float = 5.0) -> Any:
        """A service's response."""
        driver = next(node for node, _ in self._running if isinstance(node, Driver))
        client = driver.create_client(kind, name)
        assert client.wait_for_service(timeout), f"no service {name}"
        future = client.call_async(request)
        wait_until(future.done, f"an answer of {name}")
        return future.result()

    def close(self) -> None:
        """End everything."""
        self._stopping.set()
        for node, thread in self._running:
            thread.join(10)
            assert not thread.is_alive(), f"{node.get_name()} still spins"
            if isinstance(node, AlpamayoNode):
                node.close()
            node.destroy_node()
        self.context.try_shutdown()

    def _spin(self, node: Node) -> None:
        thread = threading.Thread(target=serve, args=(node, self._stopping), name=f"spin {node.get_name()}")
        thread.start()
        self._running.append((node, thread))
