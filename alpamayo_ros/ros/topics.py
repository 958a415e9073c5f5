"""Looks for what leaves a topic silent without an error, a wrong type and incompatible QoS; and for what mixes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rclpy.duration import Infinite
from rclpy.node import Node
from rclpy.qos import (
    DurabilityPolicy,
    LivelinessPolicy,
    QoSCompatibility,
    QoSProfile,
    ReliabilityPolicy,
    qos_check_compatible,
)

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError


def topic_qos(
    depth: int,
    reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE,
    durability: DurabilityPolicy = DurabilityPolicy.VOLATILE,
) -> QoSProfile:
    """A QoS profile with every policy written out: what is left open can't be compared with others'."""
    return QoSProfile(
        depth=depth,
        reliability=reliability,
        durability=durability,
        deadline=Infinite,
        lifespan=Infinite,
        liveliness=LivelinessPolicy.AUTOMATIC,
        liveliness_lease_duration=Infinite,
    )


def input_topics(node: Node, settings: Settings) -> dict[str, str]:
    """The full topic of each parameter that names one, such as cameras.front_wide.topic; /tf as an odometry.

    Raises:
        ConfigurationError: a name can't be one of a topic, or two inputs have the same, by a namespace or a remapping.
    """
    wanted = {f"cameras.{camera.name}.topic": camera.topic for camera in settings.cameras}
    wanted["odometry.topic"] = settings.odometry.pose_topic
    resolved: dict[str, str] = {}
    for parameter, topic in wanted.items():
        try:
            full = node.resolve_topic_name(topic)
        except Exception as error:  # RCLError has no public name
            reason = str(error).split(", at /")[0]
            raise ConfigurationError(f"{parameter} is {topic!r}, which is no name of a topic: {reason}") from error
        for other, taken in resolved.items():
            if taken == full:
                raise ConfigurationError(f"{parameter} leads to {full}, as {other} does: each needs its own")
        resolved[parameter] = full
    return resolved


@dataclass(frozen=True)
class Endpoint:
    """One end of a topic that this node has, or is going to have."""

    topic: str  # fully qualified, after remapping
    type_name: str  # "sensor_msgs/msg/Image"
    qos: QoSProfile
    remedy: str = ""  # what the user may change on this side
    shared: bool = False  # several may publish it


@dataclass(frozen=True)
class Publishers:
    """Those of an input."""

    faults: tuple[str, ...] = ()  # those that can't be heard, each with why
    warnings: tuple[str, ...] = ()  # that there are several: what they send, say a camera and a bag, mixes unnoticed


def look_at_publishers(node: Node, subscribed: Endpoint) -> Publishers:
    """The publishers of a topic, as this subscription meets them."""
    faults, heard = [], []
    for info in node.get_publishers_info_by_topic(subscribed.topic):
        who = f"{info.node_namespace.rstrip('/')}/{info.node_name}"
        if info.topic_type != subscribed.type_name:
            faults.append(
                f"{who} publishes {info.topic_type} on {subscribed.topic}, expected {subscribed.type_name}"
                f"{subscribed.remedy and ': ' + subscribed.remedy}"
            )
            continue
        verdict, reason = qos_check_compatible(info.qos_profile, subscribed.qos)
        if verdict == QoSCompatibility.ERROR:
            faults.append(f"{who} publishes {subscribed.topic} with incompatible QoS: {reason.strip()}")
        else:
            heard.append(who)
    several = f"{len(heard)} publishers on {subscribed.topic}, expected 1: {', '.join(sorted(heard))}"
    return Publishers(tuple(faults), (several,) if len(heard) > 1 and not subscribed.shared else ())


def subscriber_faults(node: Node, published: Iterable[Endpoint]) -> tuple[str, ...]:
    """Subscribers of these topics that can't hear this node, each with why."""
    faults = []
    for endpoint in published:
        for info in node.get_subscriptions_info_by_topic(endpoint.topic):
            who = f"{info.node_namespace.rstrip('/')}/{info.node_name}"
            if info.topic_type != endpoint.type_name:
                faults.append(f"{who} expects {info.topic_type} on {endpoint.topic}, which is {endpoint.type_name}")
                continue
            verdict, reason = qos_check_compatible(endpoint.qos, info.qos_profile)
            if verdict == QoSCompatibility.ERROR:
                faults.append(f"{who} subscribes {endpoint.topic} with incompatible QoS: {reason.strip()}")
    return tuple(faults)


def type_name(message_type: type) -> str:
    """The name of a message class as the graph has it: "sensor_msgs/msg/Image"."""
    package, kind = message_type.__module__.split(".")[:2]
    return f"{package}/{kind}/{message_type.__name__}"
