"""A rig takes its inputs from a bag by name and type, and says what is missing."""

from pathlib import Path

import numpy as np
import pytest
from drives import JPEG, ODOMETRY, SECOND, START_NS, Message, record, rig, straight, write_bag

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagReader, ros_types
from alpamayo_ros.evaluation.inputs import BagInputs

TYPES = ros_types().types
REAL = Path(__file__).parents[2].parent / "shared" / "data" / "bags"


def static_transform(parent: str, child: str, x: float) -> Message:
    """The child frame x m ahead of the parent."""
    transform = TYPES["geometry_msgs/msg/TransformStamped"](
        header=TYPES["std_msgs/msg/Header"](
            stamp=TYPES["builtin_interfaces/msg/Time"](sec=0, nanosec=0), frame_id=parent
        ),
        child_frame_id=child,
        transform=TYPES["geometry_msgs/msg/Transform"](
            translation=TYPES["geometry_msgs/msg/Vector3"](x=x, y=0.0, z=0.0),
            rotation=TYPES["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0),
        ),
    )
    return Message("/tf_static", TYPES["tf2_msgs/msg/TFMessage"](transforms=[transform]), START_NS)


def of_child(messages: list[Message], child: str) -> list[Message]:
    """The drive with odometry of that child frame."""
    for message in messages:
        if message.topic == ODOMETRY:
            message.content.child_frame_id = child
    return messages


def test_every_missing_topic_is_named_beside_those_that_the_bag_has(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", record(straight(1.0), 1))
    settings = rig(("front_wide", "front_tele"), odometry__topic="/odom")
    with BagReader(bag) as reader, pytest.raises(ConfigurationError) as caught:
        BagInputs(reader, settings)
    text = str(caught.value)
    assert (
        "/camera/front_tele/image/compressed (sensor_msgs/msg/CompressedImage, parameter cameras.front_tele.topic)"
        in text
    )
    assert "/odom (nav_msgs/msg/Odometry, parameter odometry.topic)" in text
    assert "/odometry (nav_msgs/msg/Odometry, 51)" in text


def test_a_topic_of_another_type_is_named(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", record(straight(1.0), 1))
    with BagReader(bag) as reader, pytest.raises(ConfigurationError, match="expected sensor_msgs/msg/Image"):
        BagInputs(reader, rig(cameras__front_wide__transport="raw"))


def test_an_optional_camera_may_be_missing(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", record(straight(1.0), 1))
    settings = rig(("front_wide", "front_tele"), cameras__front_tele__required=False)
    with BagReader(bag) as reader:
        inputs = BagInputs(reader, settings)
        assert inputs.topics == ["/camera/front_wide/image/compressed", ODOMETRY]
        assert inputs.warnings == ["the bag has no topic for the optional camera front_tele"]


@pytest.mark.parametrize("bag", ["ins_navsat_drive_DIT_Loop", "oxts_ins_start_position_A"])
def test_recorded_bags_without_cameras_are_refused_with_what_they_have(bag: str) -> None:
    if not (REAL / bag).is_dir():
        pytest.skip(f"{REAL / bag} is not here")
    with BagReader(REAL / bag) as reader, pytest.raises(ConfigurationError, match="front_wide") as caught:
        BagInputs(reader, rig())
    for topic in reader.topics:
        assert topic in str(caught.value)


class TestPoses:
    def positions(self, messages: list[Message], folder: Path, **changes: object) -> tuple[np.ndarray, list[str]]:
        with BagReader(write_bag(folder / "bag", messages)) as reader:
            inputs = BagInputs(reader, rig(**changes))
            poses = np.array([pose.position for pose in inputs.recorded_poses()])
            from alpamayo_ros.core.observe import build_observation_builder

            builder = build_observation_builder(rig().builder_config())
            for message in inputs.messages():
                inputs.feed(builder, message, message.receive_ns)
            return poses, inputs.warnings

    def test_they_are_the_recorded_ones(self, tmp_path: Path) -> None:
        found, warnings = self.positions(record(straight(2.0), 1), tmp_path)
        assert found[:, 0] == pytest.approx(np.linspace(0, 2, 51))
        assert warnings == []

    def test_a_static_transform_brings_them_to_base_link(self, tmp_path: Path) -> None:
        messages = [static_transform("imu", "base_link", -1.5), *of_child(record(straight(2.0), 1), "imu")]
        found, warnings = self.positions(messages, tmp_path)
        assert found[:, 0] == pytest.approx(np.linspace(0, 2, 51) - 1.5)
        assert warnings == []

    def test_so_does_one_the_other_way_round(self, tmp_path: Path) -> None:
        messages = [static_transform("base_link", "imu", 1.5), *of_child(record(straight(2.0), 1), "imu")]
        found, _ = self.positions(messages, tmp_path)
        assert found[:, 0] == pytest.approx(np.linspace(0, 2, 51) - 1.5)

    def test_child_to_base_wins_over_it(self, tmp_path: Path) -> None:
        messages = [static_transform("imu", "base_link", -1.5), *of_child(record(straight(2.0), 1), "imu")]
        found, _ = self.positions(messages, tmp_path, odometry__child_to_base=[-3.0, 0, 0, 0, 0, 0])
        assert found[:, 0] == pytest.approx(np.linspace(0, 2, 51) - 3.0)

    def test_another_child_frame_without_a_transform_is_warned_of(self, tmp_path: Path) -> None:
        found, warnings = self.positions(of_child(record(straight(2.0), 1), "imu"), tmp_path)
        assert found[:, 0] == pytest.approx(np.linspace(0, 2, 51))
        assert "'imu', taken for 'base_link'" in warnings[0]


def test_frames_are_found_again_by_their_stamps(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", record(straight(1.0), 3), lambda message: 0.2)
    settings = rig(cameras__front_wide__time_offset=-0.05)
    with BagReader(bag) as reader:
        inputs = BagInputs(reader, settings)
        stamp_ns = START_NS + 2 * SECOND - 50_000_000
        decided_ns = START_NS + 3 * SECOND
        found = inputs.frames("front_wide", {stamp_ns: decided_ns, stamp_ns - SECOND: decided_ns, 17: decided_ns})
        assert sorted(found) == [stamp_ns - SECOND, stamp_ns]
        frame = found[stamp_ns]
        assert (frame.stamp_ns, frame.camera, frame.encoding) == (stamp_ns, 1, "jpeg")
        assert bytes(np.asarray(frame.data)) == JPEG
        assert inputs.frames("front_wide", {}) == {}
        long_before = START_NS - 20 * SECOND
        assert inputs.frames("front_wide", {stamp_ns: long_before}) == {}
