"""Drives with a known motion, as bags: a small picture at 10 Hz and odometry at 50 Hz, received when the test wants."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from alpamayo_ros.core.settings import Settings, parse_settings
from alpamayo_ros.core.types import Array, EgoPose, Observation
from alpamayo_ros.evaluation.bag import BagWriter
from alpamayo_ros.evaluation.drive_bag import DriveBag, image_topic
from alpamayo_ros.sensors.decode import decode

START_NS = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
ODOMETRY = "/odometry"
JPEG = cv2.imencode(".jpg", np.full((18, 32, 3), 128, np.uint8))[1].tobytes()

Motion = Callable[[float], tuple[float, float, float]]  # s to x, y in m and yaw in rad, in odom


def straight(speed: float, heading: float = 0.0) -> Motion:
    return lambda t: (speed * t * np.cos(heading), speed * t * np.sin(heading), heading)


def circle(speed: float, radius: float) -> Motion:
    """To the left, beginning at the origin along x."""

    def motion(t: float) -> tuple[float, float, float]:
        angle = speed * t / radius
        return radius * np.sin(angle), radius * (1 - np.cos(angle)), angle

    return motion


def rotation(yaw: float) -> Array:
    cos, sin = np.cos(yaw), np.sin(yaw)
    return np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1.0]])


def poses(motion: Motion, seconds: float, rate: float = 50.0) -> list[EgoPose]:
    """base_link's poses, without a twist."""
    found = []
    for number in range(round(seconds * rate) + 1):
        t = number / rate
        x, y, yaw = motion(t)
        found.append(
            EgoPose(
                stamp_ns=START_NS + round(t * SECOND),
                position=np.array([x, y, 0.0]),
                orientation=np.array([0.0, 0.0, np.sin(yaw / 2), np.cos(yaw / 2)]),
            )
        )
    return found


@dataclass(frozen=True)
class Message:
    topic: str
    content: Any
    stamp_ns: int

    @property
    def seconds(self) -> float:
        """After the start of the drive."""
        return (self.stamp_ns - START_NS) / SECOND


class _Collector:
    """Stands where DriveBag expects a bag."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def write(self, topic: str, content: Any, stamp_ns: int) -> None:
        if topic != "/tf":
            self.messages.append(Message(topic, content, stamp_ns))


def record(
    motion: Motion, seconds: float, cameras: Sequence[str] = ("front_wide",), image_rate: int = 10
) -> list[Message]:
    """What is sent during a drive, in order."""
    collector = _Collector()
    bag = DriveBag(collector)  # type: ignore[arg-type]
    for pose in poses(motion, seconds):
        t = (pose.stamp_ns - START_NS) / SECOND
        yaw = motion(t)[2]
        step = 1e-4
        (x0, y0, yaw0), (x1, y1, yaw1) = motion(t - step), motion(t + step)
        velocity = rotation(yaw).T @ np.array([x1 - x0, y1 - y0, 0]) / (2 * step)
        turning = np.array([0, 0, yaw1 - yaw0]) / (2 * step)
        bag.pose(pose.stamp_ns, pose.position, rotation(yaw), velocity, turning)
    for number in range(round(seconds * image_rate) + 1):
        for camera in cameras:
            bag.image(camera, START_NS + number * SECOND // image_rate, JPEG, "jpeg")
    return sorted(collector.messages, key=lambda message: (message.stamp_ns, message.topic))


def decode_all(observation: Observation) -> None:
    """What an engine does with an observation's frames: raises BadImageError for one that can't be decoded."""
    for frames in observation.frames.values():
        for frame in frames:
            decode(frame)


def write_bag(path: Path, messages: Sequence[Message], lag: Callable[[Message], float] = lambda message: 0.0) -> Path:
    """A bag in which each message was received `lag` s after its stamp."""
    with BagWriter(path) as bag:
        for message in messages:
            bag.write(message.topic, message.content, message.stamp_ns + round(lag(message) * SECOND))
    return path


def rig(cameras: Sequence[str] = ("front_wide",), **changes: Any) -> Settings:
    """Settings for these bags; dots in the names of parameters are written as double underscores."""
    flat: dict[str, Any] = {f"cameras.{name}.topic": image_topic(name) for name in cameras}
    flat |= {"odometry.topic": ODOMETRY, "engine.kind": "null", "rate_hz": 2.0}
    return parse_settings(flat | {name.replace("__", "."): value for name, value in changes.items()})
