"""Bags are written whole or not at all, and read as far as they go."""

import os
import resource
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
import yaml
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagReader, BagWriter, ros_types

SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "bags"
TYPES = ros_types().types
STORAGES = ["mcap", "sqlite3"]
SECOND = 1_000_000_000
IMAGE, ODOMETRY = "/camera/front_wide/image/compressed", "/odometry"


def header(stamp_ns: int, frame: str = "odom") -> object:
    stamp = TYPES["builtin_interfaces/msg/Time"](sec=stamp_ns // SECOND, nanosec=stamp_ns % SECOND)
    return TYPES["std_msgs/msg/Header"](stamp=stamp, frame_id=frame)


def image(number: int, size: int = 50_000) -> object:
    data = np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)
    return TYPES["sensor_msgs/msg/CompressedImage"](header=header(number), format="jpeg", data=data)


def text(data: str) -> object:
    return TYPES["std_msgs/msg/String"](data=data)


def write_bag(path: Path, storage: str, images: int = 100) -> Path:
    """10 Hz of images and 20 Hz of texts, from second 100 on."""
    with BagWriter(path, storage) as bag:
        for number in range(images):
            at = 100 * SECOND + number * SECOND // 10
            bag.write(IMAGE, image(number), at)
            bag.write("/text", text(f"{number}a"), at + 1)
            bag.write("/text", text(f"{number}b"), at + SECOND // 20)
    return path


def storage_file(bag: Path) -> Path:
    (file,) = (file for file in bag.iterdir() if file.suffix in (".mcap", ".db3"))
    return file


def truncate(file: Path, kept: float) -> None:
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(data[: int(len(data) * kept)])


@pytest.mark.parametrize("storage", STORAGES)
class TestRoundTrip:
    def test_what_was_written_is_read_in_order_of_arrival(self, tmp_path: Path, storage: str) -> None:
        with BagReader(write_bag(tmp_path / "drive", storage)) as bag:
            assert bag.topics == {IMAGE: "sensor_msgs/msg/CompressedImage", "/text": "std_msgs/msg/String"}
            assert (bag.count(IMAGE), bag.count("/text"), bag.count("/else")) == (100, 200, 0)
            assert bag.start_ns == 100 * SECOND
            assert bag.duration == pytest.approx(9.95)
            messages = list(bag.messages())
            assert [m.message.data for m in messages if m.topic == "/text"][:3] == ["0a", "0b", "1a"]
            assert np.array_equal(messages[3].message.data, image(1).data)
            times = [m.receive_ns for m in messages]
            assert times == sorted(times)
            assert len(times) == 300
            assert bag.warnings == []

    def test_messages_written_out_of_order_come_back_in_order(self, tmp_path: Path, storage: str) -> None:
        order = np.random.default_rng(1).permutation(200)
        with BagWriter(tmp_path / "drive", storage) as bag:
            for number in order:
                bag.write(IMAGE, image(int(number)), int(number) * SECOND)
        with BagReader(tmp_path / "drive") as bag:
            assert [m.receive_ns for m in bag.messages()] == [number * SECOND for number in range(200)]

    def test_only_the_topics_asked_for(self, tmp_path: Path, storage: str) -> None:
        with BagReader(write_bag(tmp_path / "drive", storage, images=3)) as bag:
            assert {m.topic for m in bag.messages(["/text"])} == {"/text"}

    def test_a_single_file_is_a_bag_too(self, tmp_path: Path, storage: str) -> None:
        with BagReader(storage_file(write_bag(tmp_path / "drive", storage, images=3))) as bag:
            assert len(list(bag.messages())) == 9

    def test_this_packages_own_messages(self, tmp_path: Path, storage: str) -> None:
        duration = TYPES["builtin_interfaces/msg/Duration"](sec=4, nanosec=300_000_000)
        position = TYPES["geometry_msgs/msg/Point"](x=1.0, y=2.0, z=3.0)
        orientation = TYPES["geometry_msgs/msg/Quaternion"](x=0.0, y=0.0, z=0.0, w=1.0)
        pose = TYPES["geometry_msgs/msg/Pose"](position=position, orientation=orientation)
        point = TYPES["alpamayo_ros/msg/TrajectoryPoint"](duration, pose, speed=9.5, acceleration=-1.0, curvature=0.25)
        trajectory = TYPES["alpamayo_ros/msg/Trajectory"](
            header=header(7), valid_until=header(8).stamp, points=[point], initial_speed=9.0, reason=""
        )
        with BagWriter(tmp_path / "result", storage) as bag:
            bag.write("/alpamayo/output/trajectory", trajectory, 5)
        with BagReader(tmp_path / "result") as bag:
            (read,) = bag.messages()
        assert read.type == "alpamayo_ros/msg/Trajectory"
        assert (read.message.points[0].speed, read.message.points[0].curvature) == (9.5, 0.25)
        assert read.message.points[0].time_from_start.nanosec == 300_000_000

    def test_static_transforms_stay_latched(self, tmp_path: Path, storage: str) -> None:
        with BagWriter(tmp_path / "drive", storage) as bag:
            bag.write("/tf_static", TYPES["tf2_msgs/msg/TFMessage"](transforms=[]), 1)
            bag.write("/tf", TYPES["tf2_msgs/msg/TFMessage"](transforms=[]), 2)
        with BagReader(tmp_path / "drive") as bag:
            assert bag.latched == {"/tf_static"}

    def test_an_empty_bag(self, tmp_path: Path, storage: str) -> None:
        with BagWriter(tmp_path / "drive", storage):
            pass
        with BagReader(tmp_path / "drive") as bag:
            assert list(bag.messages()) == []
            assert (bag.start_ns, bag.duration, bag.topics) == (0, 0, {})

    def test_missing_topics_are_named_with_what_there_is(self, tmp_path: Path, storage: str) -> None:
        bag = BagReader(write_bag(tmp_path / "drive", storage, images=2))
        with pytest.raises(ConfigurationError) as raised:
            bag.messages([ODOMETRY, IMAGE])
        assert "has no topic /odometry;" in str(raised.value)
        assert "/text (std_msgs/msg/String, 4)" in str(raised.value)


@pytest.mark.parametrize("storage", STORAGES)
class TestWritingFails:
    def test_a_failure_leaves_nothing_behind(self, tmp_path: Path, storage: str) -> None:
        def interrupted_writing() -> None:
            with BagWriter(tmp_path / "drive", storage) as bag:
                bag.write("/text", text("half"), 1)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted_writing()
        assert list(tmp_path.iterdir()) == []

    def test_there_is_no_bag_before_it_is_whole(self, tmp_path: Path, storage: str) -> None:
        with BagWriter(tmp_path / "drive", storage) as bag:
            bag.write("/text", text("half"), 1)
            assert not (tmp_path / "drive").exists()
        assert [path.name for path in tmp_path.iterdir()] == ["drive"]

    def test_an_existing_bag_is_kept(self, tmp_path: Path, storage: str) -> None:
        write_bag(tmp_path / "drive", storage, images=1)
        with pytest.raises(ConfigurationError, match="drive exists; remove it or choose another name"):
            BagWriter(tmp_path / "drive", storage)

    def test_an_existing_bag_is_replaced_on_demand_once_the_new_one_is_whole(
        self, tmp_path: Path, storage: str
    ) -> None:
        write_bag(tmp_path / "drive", storage, images=1)
        with pytest.raises(RuntimeError), BagWriter(tmp_path / "drive", storage, overwrite=True):
            raise RuntimeError
        assert BagReader(tmp_path / "drive").count(IMAGE) == 1
        with BagWriter(tmp_path / "drive", storage, overwrite=True) as bag:
            bag.write("/text", text("new"), 1)
        assert BagReader(tmp_path / "drive").topics == {"/text": "std_msgs/msg/String"}

    def test_a_folder_that_is_no_bag_is_never_replaced(self, tmp_path: Path, storage: str) -> None:
        (tmp_path / "home").mkdir()
        with pytest.raises(ConfigurationError, match="exists and is no bag"):
            BagWriter(tmp_path / "home", storage, overwrite=True)

    def test_two_types_on_one_topic_are_refused(self, tmp_path: Path, storage: str) -> None:
        with BagWriter(tmp_path / "drive", storage) as bag:
            bag.write("/text", text("x"), 1)
            with pytest.raises(ConfigurationError, match="carries std_msgs/msg/String, not sensor_msgs/msg/Comp"):
                bag.write("/text", image(1), 2)


@pytest.mark.parametrize("storage", STORAGES)
def test_a_full_disk_is_an_error_that_names_the_bag_and_leaves_the_earlier_one(tmp_path: Path, storage: str) -> None:
    write_bag(tmp_path / "drive", storage, images=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))  # the n-th write fails, as on a full disk
    try:
        with pytest.raises(ConfigurationError, match=r"the bag .*drive can't be written: "):
            rewrite_bag(tmp_path / "drive", storage, images=100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in tmp_path.iterdir()] == ["drive"]
    assert BagReader(tmp_path / "drive").count(IMAGE) == 1


def rewrite_bag(path: Path, storage: str, images: int) -> None:
    with BagWriter(path, storage, overwrite=True) as bag:
        for number in range(images):
            bag.write(IMAGE, image(number), 100 * SECOND + number)


@pytest.mark.parametrize("times", [(-1, 0), (0, 2**31 * SECOND)], ids=["received before 1970", "stamped after 2038"])
def test_a_time_that_no_bag_can_hold_is_named(tmp_path: Path, times: tuple[int, int]) -> None:
    def write() -> None:
        with BagWriter(tmp_path / "drive") as bag:
            bag.write(IMAGE, image(times[1]), times[0])

    with pytest.raises(ConfigurationError, match=r"drive can't be written: .*; times in a bag go from 0 to 2038"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_storage_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="bag storage 'rosbag1', expected one of mcap, sqlite3"):
        BagWriter(tmp_path / "drive", "rosbag1")


class TestDamagedBags:
    @pytest.mark.parametrize("kept", [0.95, 0.5, 0.1])
    @pytest.mark.parametrize("storage", STORAGES)
    def test_a_truncated_bag_is_read_up_to_the_damage(self, tmp_path: Path, storage: str, kept: float) -> None:
        whole = write_bag(tmp_path / "whole", storage)
        cut = Path(shutil.copytree(whole, tmp_path / "cut"))
        truncate(storage_file(cut), kept)
        with BagReader(whole) as bag:
            wanted = [(m.topic, m.receive_ns, m.data) for m in bag.raw_messages()]
        with BagReader(cut) as bag:
            read = [(m.topic, m.receive_ns, m.data) for m in bag.raw_messages()]
            counted = bag.count(IMAGE) + bag.count("/text")
            assert len(bag.warnings) == 1
            assert "is damaged" in bag.warnings[0]
            assert f"{len(read)} messages before that could be read" in bag.warnings[0]
        assert counted == len(read)
        assert read == wanted[: len(read)]
        assert (kept - 0.06) * len(wanted) <= len(read) <= (kept + 0.02) * len(wanted)

    @pytest.mark.parametrize("compression", ["zstd", "none"])
    def test_an_mcap_file_without_its_index(self, tmp_path: Path, compression: str) -> None:
        """What a killed recorder leaves: whole chunks, then nothing; and no metadata.yaml."""
        bag = write_mcap(tmp_path / "drive", compression)
        data = storage_file(bag).read_bytes()
        storage_file(bag).write_bytes(data[: data.index(b"serialized_metadata") - 24])
        (bag / "metadata.yaml").unlink()
        with BagReader(bag) as reader:
            assert [m.message.data for m in reader.messages()] == [f"{number}" * 5000 for number in range(500)]
            assert "metadata.yaml is missing" in reader.warnings[0]
            assert "500 messages before that could be read" in reader.warnings[1]

    def test_a_compressed_chunk_that_is_cut_is_left_out(self, tmp_path: Path) -> None:
        bag = write_mcap(tmp_path / "drive", "zstd", chunks_of_noise=True)
        truncate(storage_file(bag), 0.5)
        with BagReader(bag) as reader:
            read = [m.receive_ns for m in reader.messages()]
            assert "within a record of" in reader.warnings[0]
        assert read == list(range(len(read)))
        assert 100 < len(read) < 250

    def test_a_chunk_that_is_damaged_within_ends_the_reading_with_a_warning(self, tmp_path: Path) -> None:
        bag = write_mcap(tmp_path / "drive", "zstd", chunks_of_noise=True)
        data = bytearray(storage_file(bag).read_bytes())
        zstd_frame = data.index(b"\x28\xb5\x2f\xfd", len(data) // 2)
        data[zstd_frame : zstd_frame + 4] = bytes(4)
        storage_file(bag).write_bytes(bytes(data))
        with BagReader(bag) as reader:
            read = [m.receive_ns for m in reader.messages()]
            assert "is damaged (" in reader.warnings[0]
            assert f"messages up to receive time {read[-1]} ns could be read" in reader.warnings[0]
        assert read == list(range(len(read)))
        assert 200 < len(read) < 300

    def test_a_message_that_does_not_fit_its_type_is_left_out(self, tmp_path: Path) -> None:
        with Writer(tmp_path / "drive", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            topic = writer.add_connection("/text", "std_msgs/msg/String", typestore=ros_types())
            whole = bytes(ros_types().serialize_cdr(text("whole"), "std_msgs/msg/String"))
            for at, data in enumerate([whole, whole[:7], b"", whole]):
                writer.write(topic, at, data)
        with BagReader(tmp_path / "drive") as bag:
            assert [m.receive_ns for m in bag.messages()] == [0, 3]
            assert "a std_msgs/msg/String on /text can't be deserialized" in bag.warnings[0]
            assert "2 messages on /text were left out" in bag.warnings[1]

    def test_a_damaged_metadata_file(self, tmp_path: Path) -> None:
        bag = write_bag(tmp_path / "drive", "mcap", images=2)
        (bag / "metadata.yaml").write_text("rosbag2_bagfile_information: [")
        with BagReader(bag) as reader:
            assert len(list(reader.messages())) == 6
            assert "metadata.yaml can't be read" in reader.warnings[0]


class TestSplitAndCompressedBags:
    def test_a_split_bag_is_one_stream_even_where_the_parts_overlap(self, tmp_path: Path) -> None:
        parts = []
        for number, times in enumerate([range(60), range(55, 120)]):
            with BagWriter(tmp_path / f"part_{number}") as bag:
                for at in times:
                    bag.write(f"/text_{number}", text(""), at)
            parts.append(storage_file(tmp_path / f"part_{number}"))
        shutil.copy(parts[1], tmp_path / "part_0")
        metadata = yaml.safe_load((tmp_path / "part_0" / "metadata.yaml").read_text())
        metadata["rosbag2_bagfile_information"]["relative_file_paths"] = [part.name for part in parts]
        (tmp_path / "part_0" / "metadata.yaml").write_text(yaml.safe_dump(metadata))
        with BagReader(tmp_path / "part_0") as bag:
            assert list(bag.topics) == ["/text_0", "/text_1"]
            assert [m.receive_ns for m in bag.messages()] == sorted([*range(60), *range(55, 120)])
            assert bag.end_ns == 119

    def test_a_part_that_is_missing_is_named(self, tmp_path: Path) -> None:
        bag = write_bag(tmp_path / "drive", "mcap", images=2)
        metadata = (bag / "metadata.yaml").read_text()
        (bag / "metadata.yaml").write_text(metadata.replace("- drive.mcap", "- drive.mcap\n  - drive_1.mcap"))
        with BagReader(bag) as reader:
            assert len(list(reader.messages())) == 6
            assert "drive_1.mcap is missing" in reader.warnings[0]

    @pytest.mark.parametrize("mode", [CompressionMode.FILE, CompressionMode.MESSAGE])
    def test_compressed_sqlite_bags(self, tmp_path: Path, mode: CompressionMode) -> None:
        writer = Writer(tmp_path / "drive", version=9, storage_plugin=StoragePlugin.SQLITE3)
        writer.set_compression(mode, CompressionFormat.ZSTD)
        with writer:
            topic = writer.add_connection("/text", "std_msgs/msg/String", typestore=ros_types())
            writer.write(topic, 3, ros_types().serialize_cdr(text("packed"), "std_msgs/msg/String"))
        with BagReader(tmp_path / "drive") as bag:
            assert [m.message.data for m in bag.messages()] == ["packed"]


class TestForeignTypes:
    def test_a_type_that_the_bag_itself_defines(self, tmp_path: Path) -> None:
        write_foreign_bag(tmp_path / "drive", "uint8 channel\nfloat32 range\n")
        with BagReader(tmp_path / "drive") as bag:
            (message,) = bag.messages()
        assert (message.type, message.message.channel) == ("vendor_msgs/msg/Ping", 7)

    def test_a_type_that_nothing_defines(self, tmp_path: Path) -> None:
        write_foreign_bag(tmp_path / "drive", "???")
        with BagReader(tmp_path / "drive") as bag:
            assert list(bag.messages()) == []
            assert any("topic /ping has type vendor_msgs/msg/Ping" in text for text in bag.warnings)
            with pytest.raises(ConfigurationError, match="which neither the bag nor this package defines"):
                bag.messages(["/ping"])
            assert [m.topic for m in bag.raw_messages()] == ["/ping"]


class TestNoBagAtAll:
    @pytest.mark.parametrize("name", ["x" * 300, "pipe.mcap", "loop"])
    def test_what_is_neither_a_folder_nor_a_file(self, tmp_path: Path, name: str) -> None:
        os.mkfifo(tmp_path / "pipe.mcap")
        (tmp_path / "loop").symlink_to("loop")
        with pytest.raises(ConfigurationError, match=rf"bag.*{name}|{name}.*bag"):
            BagReader(tmp_path / name)

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"there is no bag at .*drive: no such file or folder"):
            BagReader(tmp_path / "drive")

    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "image.png").write_bytes(b"")
        with pytest.raises(ConfigurationError, match=r"neither a metadata.yaml nor a file ending in .mcap or .db3"):
            BagReader(tmp_path)

    @pytest.mark.parametrize("name", ["drive.mcap", "drive.db3"])
    @pytest.mark.parametrize("data", [b"", b"text", b"\x89MCAP0\r\n", b"\0" * 5000])
    def test_a_file_of_something_else(self, tmp_path: Path, name: str, data: bytes) -> None:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ConfigurationError, match=rf"{name} is not a bag, or nothing of it can be read"):
            BagReader(tmp_path / name)

    def test_a_ros_1_bag_says_how_to_convert_it(self, tmp_path: Path) -> None:
        (tmp_path / "drive.bag").write_bytes(b"#ROSBAG V2.0\n")
        with pytest.raises(ConfigurationError, match="convert a ROS 1 bag with rosbags-convert"):
            BagReader(tmp_path / "drive.bag")


@pytest.mark.skipif(not SHARED.exists(), reason=f"no recorded drives in {SHARED}")
class TestRecordedBags:
    def test_an_odometry_bag(self) -> None:
        with BagReader(SHARED / "oxts_ins_start_position_A") as bag:
            odometry = list(bag.messages(["/ins/odometry"]))
            assert len(odometry) == bag.count("/ins/odometry") == 1263
            assert bag.duration == pytest.approx(39.5, abs=0.01)
            assert odometry[0].message.child_frame_id == "oxts_link"
            assert bag.warnings == []

    def test_a_bag_without_what_is_needed(self) -> None:
        bag = BagReader(SHARED / "ins_navsat_drive_DIT_Loop")
        with pytest.raises(ConfigurationError, match=r"/ins/nav_sat_fix \(sensor_msgs/msg/NavSatFix, 15334\)"):
            bag.messages(["/odometry"])

    def test_a_real_bag_that_was_cut(self, tmp_path: Path) -> None:
        copy = tmp_path / "cut.db3"
        shutil.copy(storage_file(SHARED / "oxts_ins_start_position_A"), copy)
        truncate(copy, 0.5)
        with BagReader(copy) as bag:
            odometry = list(bag.messages(["/ins/odometry"]))
            assert 400 < len(odometry) < 800
            assert "is damaged" in bag.warnings[0]


def write_mcap(path: Path, compression: str, chunks_of_noise: bool = False) -> Path:
    """500 texts of 5 to 15 kB at receive times 0, 1, 2, ..."""
    writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
    if compression == "zstd":
        writer.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    noise = np.random.default_rng(0)
    with writer:
        topic = writer.add_connection("/text", "std_msgs/msg/String", typestore=ros_types())
        for number in range(500):
            words = noise.bytes(20_000).hex() if chunks_of_noise else f"{number}" * 5000
            writer.write(topic, number, ros_types().serialize_cdr(text(words), "std_msgs/msg/String"))
    return path


def write_foreign_bag(path: Path, definition: str) -> None:
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topic = writer.add_connection("/ping", "vendor_msgs/msg/Ping", msgdef=definition, rihs01="RIHS01_0")
        writer.write(topic, 1, b"\x00\x01\x00\x00\x07\x00\x00\x00\x00\x00\x80\x3f")


class TestBagsOfAnotherShape:
    """SQLite lets any column hold any type."""

    @pytest.mark.parametrize("change", ["data = 'text'", "timestamp = 'noon'", "data = 5"])
    @pytest.mark.parametrize("few", [True, False], ids=["some", "all"])
    def test_rows_of_wrong_types_are_left_out_with_a_warning(self, tmp_path: Path, change: str, few: bool) -> None:
        bag = write_bag(tmp_path / "drive", "sqlite3", images=10)
        with sqlite3.connect(storage_file(bag)) as connection:
            connection.execute(f"UPDATE messages SET {change}" + (" WHERE id > 6" if few else ""))
        with BagReader(bag) as reader:
            read = list(reader.messages())
            assert reader.warnings
        assert all(isinstance(message.receive_ns, int) for message in read)
        assert len(read) == (6 if few else 0)
