"""Poses from /tf: the same history as from the odometry of the same drive, and clear words where there is none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drives import SECOND, START_NS, Message, Motion, circle, record, rig, rotation, straight, write_bag

from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.bag import BagReader, ros_types
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.replay import Replay, Tick
from alpamayo_ros.evaluation.transform_poses import TransformFrames, TransformPoses

TYPES = ros_types().types
SECONDS = 4.0
Place = Callable[[float], tuple[float, float, float]]  # s to x, y in m and yaw in rad


def transform(t: float, parent: str, child: str, x: float, y: float, yaw: float) -> Any:
    stamp_ns = START_NS + round(t * SECOND)
    stamp = TYPES["builtin_interfaces/msg/Time"](sec=stamp_ns // SECOND, nanosec=stamp_ns % SECOND)
    z, w = float(np.sin(yaw / 2)), float(np.cos(yaw / 2))
    return TYPES["geometry_msgs/msg/TransformStamped"](
        header=TYPES["std_msgs/msg/Header"](stamp=stamp, frame_id=parent),
        child_frame_id=child,
        transform=TYPES["geometry_msgs/msg/Transform"](
            translation=TYPES["geometry_msgs/msg/Vector3"](x=float(x), y=float(y), z=0.0),
            rotation=TYPES["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=z, w=w),
        ),
    )


def tf(t: float, *transforms: Any, topic: str = "/tf") -> Message:
    return Message(topic, TYPES["tf2_msgs/msg/TFMessage"](transforms=list(transforms)), START_NS + round(t * SECOND))


def moving(parent: str, child: str, place: Place, rate: float = 50.0) -> list[Message]:
    times = np.arange(round(SECONDS * rate) + 1) / rate
    return [tf(t, transform(t, parent, child, *place(t))) for t in times]


def drive(motion: Motion) -> list[Message]:
    """Images and odometry."""
    return record(motion, SECONDS)


def without_odometry(messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.topic != "/odometry"]


def write(path: Path, messages: list[Message]) -> Path:
    return write_bag(path, sorted(messages, key=lambda message: message.stamp_ns))


def ticks(bag: Path, frames: TransformFrames | None = None, **options: Any) -> list[Tick]:
    settings = rig()
    with BagReader(bag) as reader:
        source = None if frames is None else TransformPoses(frames, settings.odometry)
        return list(Replay(BagInputs(reader, settings, source), settings, NullEngine(), **options))


def assert_same(ours: list[Tick], theirs: list[Tick], xyz: float = 1e-6) -> None:
    """The same ticks with the same history."""
    assert [tick.t0_ns for tick in ours] == [tick.t0_ns for tick in theirs]
    pairs = [(a.observation, b.observation) for a, b in zip(ours, theirs, strict=True) if b.observation is not None]
    assert len(pairs) > 3
    for a, b in pairs:
        assert a is not None
        assert np.allclose(a.history_xyz, b.history_xyz, atol=xyz)
        assert np.allclose(a.history_rotation, b.history_rotation, atol=xyz)
        assert a.pose.linear_velocity is None  # which would explain its jumps


def speeding_up(t: float) -> tuple[float, float, float]:
    return 5 * t + t * t, 0.0, 0.0  # 2 m/s^2


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("motion", [straight(12.0, 0.3), circle(8.0, 20.0), speeding_up])
def test_the_history_is_that_of_the_odometry(tmp_path: Path, motion: Motion, ideal: bool) -> None:
    bag = write(tmp_path / "bag", drive(motion) + moving("odom", "base_link", motion))
    ours, theirs = ticks(bag, TransformFrames(), ideal=ideal), ticks(bag, ideal=ideal)
    assert_same(ours, theirs)


def test_a_drive_without_odometry(tmp_path: Path) -> None:
    motion = circle(8.0, 20.0)
    both = write(tmp_path / "both", drive(motion))
    alone = write(tmp_path / "alone", without_odometry(drive(motion)) + moving("map", "base_link", motion))
    for frames in (TransformFrames(), TransformFrames("/map", "/base_link")):  # as ROS 1 had them, with a slash
        assert_same(ticks(alone, frames), ticks(both))


def test_a_chain_from_map_over_odom_and_a_static_frame(tmp_path: Path) -> None:
    """map -> odom is corrected twice a second and stamped ahead; base_link is on base_footprint."""
    motion = straight(10.0)

    def footprint(t: float) -> tuple[float, float, float]:
        x, y, yaw = motion(t)
        return x - 1.0, y, yaw

    chain = [tf(0, transform(0, "base_footprint", "base_link", 1.0, 0, 0), topic="/tf_static")]
    chain += [tf(t, transform(t + 0.5, "map", "odom", 100.0, 50.0, np.pi / 2)) for t in np.arange(0, SECONDS, 0.5)]
    chain += moving("odom", "base_footprint", footprint)
    messages = drive(motion)
    bag = write(tmp_path / "bag", messages + chain)
    expected = ticks(bag)
    assert_same(ticks(bag, TransformFrames(parent="odom")), expected)
    in_map = [tick for tick in ticks(bag, TransformFrames(parent="map")) if tick.observation is not None]
    later = {tick.t0_ns for tick in in_map}  # map -> odom is known from 0.5 s on
    assert_same(in_map, [tick for tick in expected if tick.t0_ns in later])
    first = next(tick.observation for tick in in_map if tick.observation is not None)
    assert first is not None
    assert first.pose.position[0] == pytest.approx(100)  # m; it drives to the north of map
    assert first.pose.position[1] > 60


def test_odom_is_taken_before_map_and_named_in_the_report(tmp_path: Path) -> None:
    motion = straight(10.0)
    chain = [tf(t, transform(t, "map", "odom", 3.0, 0, 0)) for t in np.arange(0, SECONDS, 0.5)]
    bag = write(tmp_path / "bag", drive(motion) + chain + moving("odom", "base_link", motion))
    settings = rig()
    with BagReader(bag) as reader:
        inputs = BagInputs(reader, settings, TransformPoses(TransformFrames(), settings.odometry))
        assert inputs.pose_source == "tf from odom to base_link"
        assert len(inputs.recorded_poses()) == 201


def test_another_child_is_brought_to_base_link(tmp_path: Path) -> None:
    """The lidar's pose, 1 m ahead; where base_link is in it says a static transform."""
    motion = circle(8.0, 20.0)

    def lidar(t: float) -> tuple[float, float, float]:
        x, y, yaw = motion(t)
        ahead: Array = rotation(yaw) @ [1.0, 0, 0]
        return x + ahead[0], y + ahead[1], yaw

    chain = [tf(0, transform(0, "base_link", "lidar", 1.0, 0, 0), topic="/tf_static"), *moving("odom", "lidar", lidar)]
    bag = write(tmp_path / "bag", drive(motion) + chain)
    assert_same(ticks(bag, TransformFrames(child="lidar")), ticks(bag))


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (TransformFrames(), "no moving transforms lead from odom or map to base_link; /tf and /tf_static have"),
        (TransformFrames(parent="earth", child="chassis"), "no moving transforms lead from earth to chassis"),
        (TransformFrames(parent="odom", child="wheel"), "lead from odom to wheel"),
    ],
)
def test_frames_that_are_not_there_are_named_with_those_that_are(
    tmp_path: Path, frames: TransformFrames, message: str
) -> None:
    chain = [tf(0, transform(0, "odom", "wheel", 1.0, 0, 0), topic="/tf_static")]
    bag = write(tmp_path / "bag", drive(straight(1.0)) + moving("odom", "chassis", straight(1.0)) + chain)
    settings = rig()
    with BagReader(bag) as reader, pytest.raises(ConfigurationError) as caught:
        BagInputs(reader, settings, TransformPoses(frames, settings.odometry))
    assert message in str(caught.value)
    assert "odom -> chassis (201), odom -> wheel (1)" in str(caught.value)


def test_a_bag_without_tf_is_named_with_what_it_has(tmp_path: Path) -> None:
    settings = rig()
    bag = write(tmp_path / "bag", drive(straight(1.0)))
    with BagReader(bag) as reader, pytest.raises(ConfigurationError) as caught:
        BagInputs(reader, settings, TransformPoses(TransformFrames(), settings.odometry))
    assert "/tf (tf2_msgs/msg/TFMessage, --pose-source tf, or parameter odometry.source) is missing" in str(
        caught.value
    )
    assert "/odometry (nav_msgs/msg/Odometry, 201)" in str(caught.value)
