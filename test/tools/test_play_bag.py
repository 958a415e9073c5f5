"""A bag that is played crosses DDS whole, unchanged, and in its own time."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drives import JPEG, record, straight
from odd_bags import CUT, WHOLE

from alpamayo_ros.evaluation.bag import BagWriter, ros_types
from alpamayo_ros.evaluation.drive_bag import DriveBag

rclpy = pytest.importorskip("rclpy", reason="ROS 2 is not installed")
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data  # noqa: E402

SECOND = 1_000_000_000
START_NS = 1000 * SECOND
IMAGE, ODOMETRY, TF_STATIC = "/camera/front_wide/image/compressed", "/odometry", "/tf_static"


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """Two seconds: images of 200 kB at 10 Hz, poses at 50 Hz, and one static transform."""
    noise = np.random.default_rng(0)
    with BagWriter(tmp_path / "drive") as writer:
        drive = DriveBag(writer)
        drive.mountings(START_NS, {"front_wide": (np.zeros(3), np.eye(3))})
        for number in range(101):
            at = START_NS + number * SECOND // 50
            drive.pose(at, np.array([number, 0, 0]), np.eye(3), np.array([50.0, 0, 0]), np.zeros(3))
            if number % 5 == 0:
                drive.image("front_wide", at, noise.bytes(200_000), "jpeg")
    return tmp_path / "drive"


class Listener:
    """Keeps everything that arrives, with the time of its arrival."""

    def __init__(self) -> None:
        self.context = rclpy.Context()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node("listener", context=self.context)
        self.executor = rclpy.executors.SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.received: dict[str, list[tuple[float, Any]]] = {}

    def listen(self, kind: type, topic: str, qos: QoSProfile) -> None:
        messages = self.received.setdefault(topic, [])
        self.node.create_subscription(kind, topic, lambda message: messages.append((time.monotonic(), message)), qos)

    def spin_while(self, condition: Callable[[], bool], timeout: float = 20) -> None:
        deadline = time.monotonic() + timeout
        while condition() and time.monotonic() < deadline:
            self.executor.spin_once(timeout_sec=0.05)

    def __getitem__(self, topic: str) -> list[Any]:
        return [message for _, message in self.received[topic]]

    def times(self, topic: str) -> np.ndarray:
        return np.array([at for at, _ in self.received[topic]])


@pytest.fixture
def listener(ros_domain: int) -> Iterator[Listener]:
    from nav_msgs.msg import Odometry
    from sensor_msgs.msg import CompressedImage

    listener = Listener()
    listener.listen(CompressedImage, IMAGE, qos_profile_sensor_data)
    listener.listen(Odometry, ODOMETRY, QoSProfile(depth=200, reliability=ReliabilityPolicy.RELIABLE))
    yield listener
    listener.executor.shutdown()
    listener.node.destroy_node()
    rclpy.shutdown(context=listener.context)


def player(bag: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "alpamayo_ros.tools.play_bag", str(bag), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def stamp_ns(message: Any) -> int:
    return message.header.stamp.sec * SECOND + message.header.stamp.nanosec


def test_every_message_arrives_unchanged_in_time_and_with_the_clock(bag: Path, listener: Listener) -> None:
    from rosgraph_msgs.msg import Clock

    listener.listen(Clock, "/clock", qos_profile_sensor_data)
    process = player(bag, "--clock", "--wait-for-subscribers", "2", "--delay", "0.5")
    listener.spin_while(lambda: process.poll() is None)
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert "played 224 messages of 4 topics" in output
    images, poses = listener[IMAGE], listener[ODOMETRY]
    assert [stamp_ns(m) for m in images] == [START_NS + n * SECOND // 10 for n in range(21)]
    assert bytes(images[0].data) == np.random.default_rng(0).bytes(200_000)
    assert [m.pose.pose.position.x for m in poses] == list(range(101))
    passed = listener.times(ODOMETRY) - listener.times(ODOMETRY)[0]
    assert np.median(np.abs(passed - np.arange(101) / 50)) < 0.05
    clock = [m.clock.sec + m.clock.nanosec * 1e-9 for m in listener["/clock"]]
    assert clock == sorted(clock)
    assert clock[0] == pytest.approx(1000.0, abs=0.2)
    assert clock[-1] == pytest.approx(1002.5, abs=0.1)


def test_twice_as_fast_a_part_of_it_and_only_one_topic(bag: Path, listener: Listener) -> None:
    process = player(bag, "--rate", "2", "--duration", "1", "--topics", ODOMETRY, "--wait-for-subscribers", "1")
    listener.spin_while(lambda: process.poll() is None)
    assert process.returncode == 0
    assert listener[IMAGE] == []
    assert len(listener[ODOMETRY]) == 51
    assert listener.times(ODOMETRY)[-1] - listener.times(ODOMETRY)[0] == pytest.approx(0.5, abs=0.2)


def test_static_transforms_reach_those_who_come_late(bag: Path, listener: Listener) -> None:
    from tf2_msgs.msg import TFMessage

    process = player(bag, "--wait-for-subscribers", "2", "--delay", "0")
    listener.spin_while(lambda: len(listener[ODOMETRY]) < 20)
    listener.listen(TFMessage, TF_STATIC, QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL))
    listener.spin_while(lambda: process.poll() is None)
    (message,) = listener[TF_STATIC]
    assert message.transforms[0].child_frame_id == "front_wide"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_loop_goes_on_until_interrupted_and_ends_cleanly(bag: Path, listener: Listener, number: int) -> None:
    process = player(bag, "--loop", "--rate", "4", "--wait-for-subscribers", "2", "--delay", "0")
    listener.spin_while(lambda: len(listener[ODOMETRY]) < 150)
    process.send_signal(number)
    output, errors = process.communicate(timeout=5)
    assert (process.returncode, errors) == (0, "")
    assert "interrupted after" in output
    positions = [m.pose.pose.position.x for m in listener[ODOMETRY]]
    assert positions[:103] == [*range(101), 0, 1]


@pytest.mark.parametrize(
    "shape",
    ["split", "split_without_metadata", "zstd_file", "zstd_file_alone", "zstd_messages", "mcap_without_index", "cut"],
)
def test_split_packed_and_cut_bags_are_played_too(tmp_path: Path, listener: Listener, shape: str) -> None:
    messages = record(straight(5.0), 1)
    bag = (WHOLE | {"cut": CUT["mcap"]})[shape](tmp_path / "bag", messages)
    process = player(bag, "--rate", "4", "--wait-for-subscribers", "2", "--delay", "0.2")
    listener.spin_while(lambda: process.poll() is None)
    assert process.wait(timeout=5) == 0
    poses = [m.pose.pose.position.x for m in listener[ODOMETRY]]
    wanted = [m.content.pose.pose.position.x for m in messages if m.topic == ODOMETRY]
    assert poses == (wanted[: len(poses)] if shape == "cut" else wanted)
    assert len(poses) > 20
    assert {bytes(m.data) for m in listener[IMAGE]} == {JPEG}


def test_a_type_that_is_not_installed_is_left_out_with_a_warning(tmp_path: Path, ros_domain: int) -> None:
    from rosbags.rosbag2 import StoragePlugin, Writer

    with Writer(tmp_path / "drive", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        ping = writer.add_connection("/ping", "vendor_msgs/msg/Ping", msgdef="uint8 channel", rihs01="RIHS01_0")
        writer.write(ping, 1, b"\x00\x01\x00\x00\x07")
        text = writer.add_connection("/text", "std_msgs/msg/String", typestore=ros_types())
        message = ros_types().types["std_msgs/msg/String"](data="hello")
        writer.write(text, 2, ros_types().serialize_cdr(message, "std_msgs/msg/String"))
    process = player(tmp_path / "drive", "--delay", "0")
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "warning: /ping is left out: its type vendor_msgs/msg/Ping is not installed" in errors
    assert "played 1 messages of 1 topics" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rate", "0"], "--rate 0.0: expected more than 0"),
        (["--rate", "1e-300"], "--rate 1e-300: expected more than 0, from 0.001 to 1000"),
        (["--clock", "1e10"], "--clock 10000000000.0: expected more than 0, from 0.001 to 1000"),
        (["--duration", "inf"], "--duration inf: expected more than 0"),
        (["--delay", "nan"], "--delay nan: expected 0 to 100000 s"),
        (["--topics", "/radar"], "has no topic /radar; it has /camera/front_wide/image/compressed"),
    ],
)
def test_mistakes_are_named(bag: Path, ros_domain: int, arguments: list[str], message: str) -> None:
    process = player(bag, *arguments)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert errors.startswith("error: ")
    assert message in errors


@pytest.mark.parametrize(
    "kind", ["antigravity/msg/Comic", "os/msg/path", "nav_msgs/msg/nope", "nav_msgs/msg/__doc__", "../x/msg/Y", "a", ""]
)
def test_a_bags_types_import_nothing_but_messages(kind: str) -> None:
    from alpamayo_ros.tools.play_bag import message_class

    with pytest.raises(ImportError, match=r"no package of messages|has no message"):
        message_class(kind)
    assert "antigravity" not in sys.modules
