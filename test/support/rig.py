"""Messages for an ObservationBuilder, built in the open: steady cameras, a drive's odometry, in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
from alpamayo_ros.core.observe import ObservationBuilder, build_observation_builder
from alpamayo_ros.core.types import EgoPose, Observation, Skip

START = 1_700_000_000_000_000_000  # ns, where every test's time begins
STRAIGHT = 10.0  # m/s


def ns(seconds: float) -> int:
    """A time of the test in ns."""
    return START + round(seconds * 1e9)


def pose_on_straight_road(stamp_ns: int, speed: float = STRAIGHT) -> EgoPose:
    """Driving along x, seen `stamp_ns - START` after x = 0."""
    x = speed * (stamp_ns - START) * 1e-9
    velocity = np.array([speed, 0.0, 0.0])
    return EgoPose(stamp_ns, np.array([x, 0.0, 0.0]), np.array([0.0, 0.0, 0.0, 1.0]), velocity, np.zeros(3))


def standing(stamp_ns: int) -> EgoPose:
    """Standing at the origin."""
    return pose_on_straight_road(stamp_ns, 0.0)


@dataclass(frozen=True)
class Message:
    """One message: from `source` (a camera, or "odometry"), stamped `stamp` s, arriving `at` s."""

    source: str
    stamp: float
    at: float
    pose: EgoPose | None = None
    size: tuple[int, int] = (0, 0)


def frames(camera: str, hz: float, begin: float = 0.0, end: float = 3.0, lag: float = 0.0) -> list[Message]:
    """A steady camera's frames, each arriving `lag` s after its stamp."""
    stamps = [begin + k / hz for k in range(math.ceil((end - begin) * hz - 1e-9))]
    return [Message(camera, stamp, stamp + lag) for stamp in stamps]


def odometry(
    hz: float = 50.0,
    begin: float = 0.0,
    end: float = 3.0,
    pose: Callable[[int], EgoPose] = pose_on_straight_road,
    lag: float = 0.0,
) -> list[Message]:
    """A steady odometry."""
    stamps = [begin + k / hz for k in range(math.ceil((end - begin) * hz - 1e-9))]
    return [Message("odometry", stamp, stamp + lag, pose(ns(stamp))) for stamp in stamps]


def builder(*cameras: str, **config: Any) -> ObservationBuilder:
    """A builder for cameras by name; the first leads, and those in brackets ("[tele]") are optional."""
    configs = [CameraConfig(name.strip("[]"), i, required=not name.startswith("[")) for i, name in enumerate(cameras)]
    return build_observation_builder(BuilderConfig(cameras=tuple(configs), anchor=configs[0].name, **config))


def send(receiver: ObservationBuilder, message: Message, now_ns: int | None = None) -> bool:
    """Give a builder one message at its arrival; whether it was kept."""
    now_ns = ns(message.at) if now_ns is None else now_ns
    if message.pose is not None:
        return receiver.add_pose(message.pose, frame_id="odom", child_frame_id="base_link", now_ns=now_ns)
    height, width = message.size
    stamp_ns = ns(message.stamp) if message.stamp else START
    frame = receiver.add_frame(message.source, stamp_ns, b"", "jpeg", now_ns=now_ns, height=height, width=width)
    return frame is not None


def run(receiver: ObservationBuilder, messages: Iterable[Message]) -> list[Observation | Skip]:
    """Send in the order of arrival, asking after every message; all that was decided."""
    decided = []
    for message in sorted(messages, key=lambda each: each.at):
        send(receiver, message)
        result = receiver.poll(ns(message.at))
        if result is not None:
            decided.append(result)
        assert all(counts.adds_up for counts in receiver.counts().values())
    return decided


def observations(decided: Iterable[Observation | Skip]) -> list[Observation]:
    """Only the ticks that could be."""
    return [each for each in decided if isinstance(each, Observation)]


def skips(decided: Iterable[Observation | Skip]) -> list[Skip]:
    """Only those that could not."""
    return [each for each in decided if isinstance(each, Skip)]


def seconds(stamp_ns: int) -> float:
    """A stamp as time of the test, to 1 us."""
    return round((stamp_ns - START) * 1e-9, 6)


def stamps(observation: Observation, camera: int) -> list[float]:
    """The stamps of a camera's frames in the time of the test."""
    return [seconds(frame.stamp_ns) for frame in observation.frames[camera]]


def delayed(messages: Iterable[Message], delays: Iterable[float]) -> list[Message]:
    """The same messages, each arriving later by its delay."""
    return [replace(message, at=message.at + delay) for message, delay in zip(messages, delays, strict=False)]
