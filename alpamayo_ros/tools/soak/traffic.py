"""A vehicle that drives the same stretch over and over, faster than real time, and has another fault every time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import rclpy
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry, Path
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage
from std_srvs.srv import SetBool, Trigger

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.msg import InferenceStatus
from alpamayo_ros.ros.convert import time_message

START_NS = 1_700_000_000_000_000_000
TICK_NS = 100_000_000
LOOP_TICKS = 200  # 20 s of the vehicle's time
FAULTY = range(60, 90)  # of these, the ticks with a fault
SPEED = 10.0  # m/s
ANSWER = 120.0  # s that a service may take: loading is among them
PARAMETERS: dict[str, Any] = {
    "use_sim_time": True,
    "cameras.front_wide.topic": "/soak/front",
    "cameras.front_wide.reliability": "reliable",
    "cameras.front_wide.depth": 100,
    "odometry.topic": "/soak/odometry",
    "odometry.reliability": "reliable",
    # the vehicle's time runs faster than the machine's, which may be busy
    "max_input_age": 10.0,
    "max_odometry_age": 10.0,
    "max_result_age": 10.0,
    "wait_timeout": 1.0,
    "sampling.num_samples": 2,
    "sampling.max_reasoning_tokens": 4,
}
JPEG = cv2.imencode(".jpg", np.random.default_rng(0).integers(0, 256, (96, 160, 3), dtype=np.uint8))[1].tobytes()

FAULTS = (
    "none",
    "cleaned up",  # early, since loading a second time takes memory that loading a third time does not
    "frames lost",
    "images corrupt",
    "images of another size",
    "stamps zero",
    "odometry NaN",
    "odometry lost",
    "odometry jumps",
    "clock stopped",
    "reset",
    "disabled",
    "deactivated",
)
OTHER_SIZE = cv2.imencode(".jpg", np.zeros((64, 96, 3), np.uint8))[1].tobytes()
TRANSITIONS = {
    "configure": Transition.TRANSITION_CONFIGURE,
    "activate": Transition.TRANSITION_ACTIVATE,
    "deactivate": Transition.TRANSITION_DEACTIVATE,
    "cleanup": Transition.TRANSITION_CLEANUP,
}


class Traffic(Node):
    """Publishes /clock, one camera and odometry, and hears what the node under test sends.

    Args:
        speed: of the vehicle's time against the machine's.
    """

    def __init__(self, speed: float) -> None:
        super().__init__("soak", enable_rosout=False)
        self.paths = 0
        self.latencies_ms: list[float] = []
        self._speed = speed
        qos = QoSProfile(depth=100)
        self._clock_out = self.create_publisher(Clock, "/clock", qos)
        self._camera = self.create_publisher(CompressedImage, PARAMETERS["cameras.front_wide.topic"], qos)
        self._odometry = self.create_publisher(Odometry, PARAMETERS["odometry.topic"], qos)
        self.create_subscription(Path, "/alpamayo/output/path", self._on_path, qos)
        self.create_subscription(InferenceStatus, "/alpamayo/output/status", self._on_status, qos)
        self._next = time.monotonic()

    def wait_until_heard(self) -> None:
        """Until it listens. Raises AlpamayoError when it never does."""
        self._spin_until(lambda: bool(self._camera.get_subscription_count()), "the node to listen")

    def drive(self, fault: str) -> Iterator[int]:
        """One loop, from START_NS on; gives each tick's number."""
        self._next = time.monotonic()
        for tick in range(LOOP_TICKS):
            now = fault if tick in FAULTY else "none"
            self._act(fault, tick)
            if now != "clock stopped":
                self._clock_out.publish(Clock(clock=time_message(START_NS + tick * TICK_NS)))
            self._send(tick, now)
            self._next += TICK_NS * 1e-9 / self._speed
            self._spin_until(lambda: time.monotonic() >= self._next, "")
            yield tick

    def _act(self, fault: str, tick: int) -> None:
        begins, ends = tick == FAULTY[0], tick == FAULTY[-1]
        if begins and fault == "reset":
            self._call(Trigger, "reset", Trigger.Request())
        elif (begins or ends) and fault == "disabled":
            self._call(SetBool, "set_enabled", SetBool.Request(data=ends))
        elif begins and fault in ("deactivated", "cleaned up"):
            self._change("deactivate")
            if fault == "cleaned up":
                self._change("cleanup")
                self._change("configure")
        elif ends and fault in ("deactivated", "cleaned up"):
            self._change("activate")

    def _send(self, tick: int, fault: str) -> None:
        stamp_ns = START_NS + tick * TICK_NS
        pose = Odometry(child_frame_id="base_link")
        pose.header.frame_id = "odom"
        pose.header.stamp = time_message(stamp_ns)
        pose.pose.pose.position.x = SPEED * tick * TICK_NS * 1e-9
        pose.pose.pose.position.y = {"odometry NaN": math.nan, "odometry jumps": 50.0}.get(fault, 0.0)
        pose.pose.pose.orientation.w = 1.0
        pose.twist.twist.linear.x = SPEED
        if fault != "odometry lost":
            self._odometry.publish(pose)
        image = CompressedImage(format="jpeg")
        image.header.stamp = time_message(0 if fault == "stamps zero" else stamp_ns)
        image.data.frombytes({"images corrupt": JPEG[:99], "images of another size": OTHER_SIZE}.get(fault, JPEG))
        if fault != "frames lost" or tick % 2:
            self._camera.publish(image)

    def _change(self, transition: str) -> None:
        request = ChangeState.Request(transition=Transition(id=TRANSITIONS[transition]))
        if not self._call(ChangeState, "change_state", request).success:
            raise AlpamayoError(f"the node refused to {transition}: its log says why")

    def _call(self, kind: type, name: str, request: Any) -> Any:
        client: Any = self.create_client(kind, f"/alpamayo/{name}")
        try:
            self._spin_until(client.service_is_ready, f"the service {name}")
            future = client.call_async(request)
            self._spin_until(future.done, f"an answer of {name}")
            return future.result()
        finally:
            self.destroy_client(client)
            self._next = time.monotonic()

    def _spin_until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + ANSWER
        while not condition():
            if time.monotonic() > end:
                raise AlpamayoError(f"waited {ANSWER:g} s for {what}")
            rclpy.spin_once(self, timeout_sec=0.005)

    def _on_path(self, _: Path) -> None:
        self.paths += 1

    def _on_status(self, status: InferenceStatus) -> None:
        if status.ok and status.stage_ms:
            self.latencies_ms.append(float(sum(status.stage_ms)))
