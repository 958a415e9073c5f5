"""What a drive's node makes of the answers of the node under test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("rclpy", reason="needs rclpy: make setup, or source a ROS 2 installation")

import rclpy
from alpamayo_ros.msg import InferenceStatus
from rosgraph_msgs.msg import Clock

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.ros.convert import time_message
from alpamayo_ros.tools.drive_node import DriveNode

SECOND = 1_000_000_000


@pytest.fixture
def other(ros_domain: int) -> Iterator[Any]:
    """A node in the place of the one under test."""
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=rclpy.SignalHandlerOptions.NO)
    node = rclpy.create_node("alpamayo", context=context, use_global_arguments=False)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


@pytest.fixture
def tell(other: Any) -> Callable[..., None]:
    """Sends a status with a stamp (s)."""
    publisher = other.create_publisher(InferenceStatus, "/alpamayo/output/status", 10)

    def tell(stamp_s: float, **fields: Any) -> None:
        message = InferenceStatus(**{"lifecycle_state": "active", **fields})
        message.header.stamp = time_message(round(stamp_s * SECOND))
        publisher.publish(message)

    return tell


def meet(drive: DriveNode, tell: Callable[..., None], **fields: Any) -> None:
    """Until statuses arrive."""
    while not drive.state:
        tell(1.0, **fields)
        drive.spin(0.02)


def hear(drive: DriveNode, condition: Callable[[], bool]) -> None:
    """Until that holds."""
    given_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < given_up
        drive.spin(0.02)


def test_a_skip_that_every_heartbeat_tells_again_counts_once(tell: Callable[..., None]) -> None:
    with DriveNode([]) as drive:
        meet(drive, tell)
        for stamp_s in (1.1, 1.1, 1.2, 1.2):
            tell(stamp_s, skip_reason="camera_gap")
        tell(1.3, skip_reason="odometry_gap", engine="the last one")
        hear(drive, lambda: drive.engine == "the last one")
        tell(1.3, skip_reason="odometry_gap", engine="its repetition")
        assert drive.take_skips(round(1.2 * SECOND)) == {"camera_gap": 1, "odometry_gap": 1}
        hear(drive, lambda: drive.engine == "its repetition")
        assert not drive.take_skips()


def test_the_answer_to_a_tick_is_one_of_its_t0(tell: Callable[..., None]) -> None:
    with DriveNode([]) as drive:
        meet(drive, tell)
        tell(1.1, skip_reason="camera_gap")
        assert not drive.wait_for(2 * SECOND, timeout_s=0.3)
        tell(2.0, skip_reason="camera_gap")
        assert drive.wait_for(2 * SECOND, timeout_s=10.0)


def test_a_jump_of_the_clock_is_over_when_the_node_has_forgotten_what_was_before(
    other: Any, tell: Callable[..., None]
) -> None:
    """The clock that a node hears after its first messages would make it forget them."""
    heard = list[int]()
    other.create_subscription(Clock, "/clock", lambda clock: heard.append(clock.clock.sec), 10)
    executor = rclpy.executors.SingleThreadedExecutor(context=other.context)
    executor.add_node(other)
    with DriveNode([]) as drive:
        meet(drive, tell, epoch=3)

        def notice() -> None:
            while not heard:
                executor.spin_once(timeout_sec=0.02)
            tell(1000.0, epoch=4)

        noticing = threading.Thread(target=notice)
        noticing.start()
        begun = time.monotonic()
        drive.set_clock(1000 * SECOND, patience_s=20.0)
        assert time.monotonic() - begun < 15
        noticing.join()
        assert heard[0] == 1000
        begun = time.monotonic()
        drive.set_clock(1000 * SECOND, patience_s=0.5)  # which it had come to already
        assert 0.4 < time.monotonic() - begun < 5
    executor.shutdown()


def test_a_node_that_can_not_be_configured_is_not_waited_for(tell: Callable[..., None]) -> None:
    fault = "on_configure failed: ConfigurationError: nothere is no folder"
    with DriveNode(["front_wide"]) as drive:
        meet(drive, tell, lifecycle_state="unconfigured", engine=fault)
        started = time.monotonic()
        with pytest.raises(AlpamayoError, match=f"the node can't be used: {fault}"):
            drive.wait_until_heard(60.0)
        assert time.monotonic() - started < 30


def test_a_node_that_is_still_loading_is_waited_for(tell: Callable[..., None]) -> None:
    with DriveNode(["front_wide"]) as drive:
        meet(drive, tell, lifecycle_state="unconfigured", engine="not configured")
        with pytest.raises(AlpamayoError, match="0 of 1 cameras have a subscriber, and the node's state is 'unconf"):
            drive.wait_until_heard(0.3)
