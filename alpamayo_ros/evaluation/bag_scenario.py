"""A bag as a scenario: what the observation builder would be given of it, and the ticks that it would decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from alpamayo_ros.core.incoming import SECOND_NS, stamp_ns
from alpamayo_ros.core.parameter_groups import CAMERA_INDICES
from alpamayo_ros.core.settings import MAX_CAMERAS, Settings, parse_settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagMessage, BagReader
from alpamayo_ros.evaluation.inputs import TRANSPORTS, BagInputs
from alpamayo_ros.evaluation.pose_source import ODOMETRY
from alpamayo_ros.evaluation.scenario import ClockEvent, Event, FrameEvent, OdometryEvent

CLOCK_TOPIC, CLOCK = "/clock", "rosgraph_msgs/msg/Clock"
# segments of an image topic that don't tell one camera from another
COMMON = {"camera", "cameras", "sensor", "sensors", "sensing", "image", "images", "image_raw", "image_color"}
COMMON |= {"image_rect", "image_rect_color", "compressed", "color", "rgb", "raw"}


class _EventMaker:
    """Stands where BagInputs expects a builder, and keeps what that is given."""

    def __init__(self) -> None:
        self.event: Event | None = None

    def add_frame(self, camera: str, stamp_ns: int, data: Any, encoding: str, *, now_ns: int, **image: Any) -> None:
        self.event = FrameEvent(now_ns, camera, stamp_ns, image.get("height", 0), image.get("width", 0))

    def add_pose(self, pose: Any, *, frame_id: str, child_frame_id: str, now_ns: int) -> None:
        self.event = OdometryEvent(now_ns, pose, frame_id, child_frame_id)

    def set_navigation(self, text: str, now_ns: int) -> None:
        """It decides nothing about a tick."""


def bag_events(
    bag: BagReader, inputs: BagInputs, start: float = 0.0, duration: float = float("inf")
) -> Iterator[Event]:
    """The inputs in a bag as events, in order of arrival, and its /clock.

    Poses are those of base_link, as the node brings them there.

    Args:
        bag: opened.
        inputs: of that bag.
        start: s after the bag's start.
        duration: s from there.
    """
    begin_ns = bag.start_ns + round(start * SECOND_NS)
    clock = [CLOCK_TOPIC] if bag.topics.get(CLOCK_TOPIC) == CLOCK else []
    for message in bag.messages([*inputs.topics, *clock]):
        after_s = (message.receive_ns - begin_ns) / SECOND_NS
        event = _event(inputs, message)  # also before the start: static transforms come once
        if event is not None and 0 <= after_s <= duration:
            yield event


def _event(inputs: BagInputs, message: BagMessage) -> Event | None:
    if message.topic == CLOCK_TOPIC:
        return ClockEvent(message.receive_ns, stamp_ns(message.message.clock))
    maker = _EventMaker()
    inputs.feed(maker, message, message.receive_ns)  # type: ignore[arg-type]
    return maker.event


def settings_of_bag(bag: BagReader, changes: dict[str, Any]) -> Settings:
    """Settings for the cameras and the odometry that a bag holds; every camera is required.

    A camera is called by the part of its topic that tells it from others.

    Args:
        bag: opened.
        changes: parameters by their names.

    Raises:
        ConfigurationError: the bag has no camera, more than the model takes, or not one odometry; says what to give.
    """
    flat: dict[str, Any] = {}
    if "odometry.topic" not in changes and changes.get("odometry.source") != "tf":
        flat["odometry.topic"] = _only_odometry(bag)
    topics = _image_topics(bag)
    if not 0 < len(topics) <= MAX_CAMERAS:
        raise ConfigurationError(
            f"{bag.path} has {len(topics)} image topics, expected 1 to {MAX_CAMERAS}: give --config, a parameter file "
            f"that names the cameras. It has (type, messages): {bag.describe_topics()}"
        )
    names = _names(topics)
    indices = {name: CAMERA_INDICES[name] for name in names.values() if name in CAMERA_INDICES}
    free = iter(index for index in range(MAX_CAMERAS) if index not in indices.values())
    for topic, name in names.items():
        transport = next(each for each, kind in TRANSPORTS.items() if kind == bag.topics[topic])
        index = indices[name] if name in indices else next(free)
        flat |= {
            f"cameras.{name}.topic": topic,
            f"cameras.{name}.transport": transport,
            f"cameras.{name}.index": index,
        }
    return parse_settings(flat | changes)


def _only_odometry(bag: BagReader) -> str:
    found = [topic for topic, kind in bag.topics.items() if kind == ODOMETRY and bag.count(topic)]
    if len(found) != 1:
        raise ConfigurationError(
            f"{bag.path} has {len(found)} topics of type {ODOMETRY}, expected 1: give --odometry-topic, or, for "
            f"poses from /tf, -p odometry.source:=tf. "
            f"It has (type, messages): {bag.describe_topics()}"
        )
    return found[0]


def _image_topics(bag: BagReader) -> list[str]:
    """One per camera: of a raw and a compressed one with the same images, the compressed one."""
    found = [topic for topic, kind in bag.topics.items() if kind in TRANSPORTS.values() and bag.count(topic)]
    return [topic for topic in found if f"{topic}/compressed" not in found and not topic.endswith("/compressedDepth")]


def _names(topics: list[str]) -> dict[str, str]:
    """A name per topic."""
    names = {}
    for topic in topics:
        parts = topic.strip("/").split("/")
        known = [part for part in parts if part in CAMERA_INDICES]
        telling = known[:1] or [part for part in parts if part not in COMMON]
        names[topic] = "_".join(telling) or parts[0]
    if len(set(names.values())) < len(names) or "odometry" in names.values():
        return {topic: topic.strip("/").replace("/", "_") for topic in topics}
    return names
