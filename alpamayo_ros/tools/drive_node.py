"""The ROS side of a synthetic drive: sends its messages, and hears what the node under test makes of them."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from alpamayo_ros.core.types import AlpamayoError, Array
from alpamayo_ros.evaluation.drive_bag import TF_STATIC_TOPIC, drive_topics, image_topic
from alpamayo_ros.evaluation.inputs import NAVIGATION_TOPIC
from alpamayo_ros.evaluation.rig import NODE
from alpamayo_ros.evaluation.ros_types import ros_types
from alpamayo_ros.tools.play_bag import CLOCK_TOPIC, message_class

DEPTH = 100
NOT_CONFIGURED = "on_configure failed"  # what its engine is then, by its status
POLL_S = 0.02
CLOCK_STEP_S = 0.5  # while an answer is waited for, the clock moves by a microsecond so often: it has not stopped
CLOCK_STEP_NS = 1000
SECOND = 1_000_000_000


@dataclass(frozen=True, eq=False)
class Answer:
    """A trajectory that came."""

    t0_ns: int
    frame_id: str
    xy: Array  # [64, 2] m in that frame


class DriveNode:
    """Publishes a drive's messages, as a sink for them, and /clock; keeps trajectories and skips. A context manager.

    Publishers are reliable, which best-effort subscribers match too.

    Args:
        cameras: their names.
    """

    def __init__(self, cameras: Iterable[str]) -> None:
        import rclpy
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
        from rosgraph_msgs.msg import Clock

        from alpamayo_ros.msg import InferenceStatus, Reasoning, Trajectory

        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=rclpy.SignalHandlerOptions.NO)
        self._node = rclpy.create_node(
            "synthetic_drive", context=self._context, use_global_arguments=False, start_parameter_services=False
        )
        self._executor = rclpy.executors.SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._clock_message, self._clock = Clock, self._node.create_publisher(Clock, CLOCK_TOPIC, 10)
        self._publishers: dict[str, Any] = {}
        self._inputs = [image_topic(camera) for camera in cameras]
        for topic, kind in drive_topics(cameras).items():
            latched = topic in (TF_STATIC_TOPIC, NAVIGATION_TOPIC)
            durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
            depth = 1 if latched else DEPTH
            qos = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE, durability=durability)
            try:
                self._publishers[topic] = self._node.create_publisher(message_class(kind), topic, qos)
            except ImportError as error:
                print(f"warning: {topic} is left out: its type {kind} is not installed ({error})", file=sys.stderr)
        self._answers: dict[int, Answer] = {}
        self._skips: dict[int, str] = {}
        self._skipped_ns = -1  # the stamp of the last one: the heartbeat tells it again
        self._now_ns = 0  # simulated
        self._epoch = 0  # of the node under test
        self._reasoning: deque[tuple[int, str]] = deque(maxlen=DEPTH)
        self.state = ""  # the node's, as its status says
        self.engine, self.trained = "", False
        self._node.create_subscription(Trajectory, f"/{NODE}/output/trajectory", self._on_trajectory, DEPTH)
        self._node.create_subscription(Reasoning, f"/{NODE}/output/reasoning_stamped", self._on_reasoning, DEPTH)
        self._node.create_subscription(InferenceStatus, f"/{NODE}/output/status", self._on_status, DEPTH)

    def __enter__(self) -> DriveNode:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import rclpy

        self._executor.shutdown()
        self._node.destroy_node()
        rclpy.shutdown(context=self._context)

    def write(self, topic: str, message: Any, receive_ns: int) -> None:
        """Publish a message, as `MessageSink` has it."""
        if topic in self._publishers:
            self._publishers[topic].publish(bytes(ros_types().serialize_cdr(message, message.__msgtype__)))

    def set_clock(self, now_ns: int, patience_s: float) -> None:
        """Simulated time jumps to that; wait until the node under test has noticed, and forgotten what was before.

        A node whose time was there already has no jump to notice: after `patience_s` it is taken for one.
        """
        before, given_up = self._epoch, time.monotonic() + patience_s
        while self._epoch <= before and time.monotonic() < given_up:
            self.publish_clock(now_ns)
            self.spin(POLL_S)

    def publish_clock(self, now_ns: int) -> None:
        """Simulated time is that."""
        self._now_ns = now_ns
        message = self._clock_message()
        message.clock.sec, message.clock.nanosec = divmod(now_ns, SECOND)
        self._clock.publish(message)

    def spin(self, seconds: float) -> None:
        """Take what comes for so long; 0 takes what has come."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            self._executor.spin_once(timeout_sec=max(min(left, POLL_S), 0.0))
            if left <= 0:
                return

    def wait_until_heard(self, timeout_s: float) -> None:
        """Until every camera has a subscriber, and the node under test is active.

        Raises:
            AlpamayoError: that took too long, or the node says that it can't be configured.
        """
        given_up = time.monotonic() + timeout_s
        while True:
            heard = sum(bool(self._publishers[topic].get_subscription_count()) for topic in self._inputs)
            if heard == len(self._inputs) and self.state == "active":
                return
            if self.state == "unconfigured" and self.engine.startswith(NOT_CONFIGURED):
                raise AlpamayoError(f"the node can't be used: {self.engine}")
            if time.monotonic() > given_up:
                raise AlpamayoError(
                    f"after {timeout_s:.0f} s {heard} of {len(self._inputs)} cameras have a subscriber, and the node's "
                    f"state is {self.state or 'unknown'!r}; start the node first"
                )
            self.spin(POLL_S)

    def wait_for(self, t0_ns: int, timeout_s: float) -> bool:
        """Until the node has answered the tick of that t0 by a trajectory or a reason; False when the time is over."""
        given_up, clock_due = time.monotonic() + timeout_s, time.monotonic() + CLOCK_STEP_S
        while t0_ns not in self._answers and t0_ns not in self._skips:
            if time.monotonic() > given_up:
                return False
            self._executor.spin_once(timeout_sec=POLL_S)
            if time.monotonic() > clock_due:
                clock_due = time.monotonic() + CLOCK_STEP_S
                self.publish_clock(self._now_ns + CLOCK_STEP_NS)
        return True

    def take_answers(self) -> list[Answer]:
        """Those that have come since the last call, in order of their t0."""
        taken = [self._answers[t0_ns] for t0_ns in sorted(self._answers)]
        self._answers.clear()
        return taken

    def reasoning_at(self, t0_ns: int) -> str:
        """What was written at a tick of late; "" where that hasn't come."""
        return next((text for stamp_ns, text in reversed(self._reasoning) if stamp_ns == t0_ns), "")

    def take_skips(self, since_ns: int = 0) -> Counter[str]:
        """How often each skip reason came since the last call, for ticks from that t0 on."""
        counts = Counter(reason for stamp_ns, reason in self._skips.items() if stamp_ns >= since_ns)
        self._skips.clear()
        return counts

    def _on_trajectory(self, message: Any) -> None:
        if message.points:
            xy = np.array([[point.pose.position.x, point.pose.position.y] for point in message.points])
            t0_ns = _ns(message.header.stamp)
            self._answers[t0_ns] = Answer(t0_ns, message.header.frame_id, xy)

    def _on_reasoning(self, message: Any) -> None:
        self._reasoning.append((_ns(message.header.stamp), message.text))

    def _on_status(self, message: Any) -> None:
        self.state, self.engine, self.trained = message.lifecycle_state, message.engine, message.trained
        self._epoch = message.epoch
        stamp_ns = _ns(message.header.stamp)
        if message.skip_reason and stamp_ns != self._skipped_ns:
            self._skipped_ns = stamp_ns
            self._skips[stamp_ns] = message.skip_reason


def _ns(stamp: Any) -> int:
    return int(stamp.sec) * SECOND + int(stamp.nanosec)
