"""A result bag holds what the node would have published, and when."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drives import ODOMETRY, START_NS, circle, record, rig, write_bag

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import HORIZON
from alpamayo_ros.engine.null_engine import INFO, NullEngine
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.ground_truth import GroundTruth
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.replay import Replay, Tick
from alpamayo_ros.evaluation.result_bag import ResultBag

OUTPUT = "/alpamayo/output"


def results(folder: Path, settings: Settings) -> tuple[list[Tick], dict[str, list[tuple[int, Any]]]]:
    """The ticks of a drive around a circle, and the messages by topic with their record times."""
    drive = [m for m in record(circle(10.0, 30.0), 4) if m.topic != ODOMETRY or not 3.25 < m.seconds < 3.75]
    with BagReader(write_bag(folder / "drive", drive)) as reader:
        ticks = list(Replay(BagInputs(reader, settings), settings, NullEngine(delay=0.005)))
    with ResultBag(folder / "results", settings, INFO) as bag:
        for tick in ticks:
            bag.write(tick)
    found: dict[str, list[tuple[int, Any]]] = {}
    with BagReader(folder / "results") as reader:
        assert reader.warnings == []
        for message in reader.messages():
            found.setdefault(message.topic.removeprefix(f"{OUTPUT}/"), []).append((message.receive_ns, message.message))
    return ticks, found


def stamp(message: Any) -> int:
    return int(message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec)


def xyz(path: Any) -> np.ndarray:
    return np.array([[p.pose.position.x, p.pose.position.y, p.pose.position.z] for p in path.poses])


def test_every_output_of_a_tick_carries_its_t0_and_comes_when_the_engine_is_done(tmp_path: Path) -> None:
    ticks, found = results(tmp_path, rig())
    good = [tick for tick in ticks if tick.skip is None]
    assert len(good) > 2
    for topic in ("path", "trajectory", "candidates", "reasoning_stamped"):
        assert [stamp(message) for _, message in found[topic]] == [tick.t0_ns for tick in good]
    for topic in ("path", "trajectory", "candidates", "reasoning", "reasoning_stamped"):
        for (at_ns, _), tick in zip(found[topic], good, strict=True):
            assert tick.engine_ms >= 5
            assert at_ns == tick.now_ns + round(tick.engine_ms * 1e6)


def test_pose_i_is_for_t0_and_i_plus_one_tenths(tmp_path: Path) -> None:
    _, found = results(tmp_path, rig())
    for _, path in found["path"]:
        assert [stamp(pose) - stamp(path) for pose in path.poses] == [(i + 1) * 100_000_000 for i in range(HORIZON)]
    for _, trajectory in found["trajectory"]:
        after = [p.time_from_start.sec * 10**9 + p.time_from_start.nanosec for p in trajectory.points]
        assert after == [(i + 1) * 100_000_000 for i in range(HORIZON)]


def test_poses_are_in_the_odometrys_frame(tmp_path: Path) -> None:
    _, found = results(tmp_path, rig(selection="first"))
    for _, path in found["path"]:
        assert path.header.frame_id == "odom"
        angle = 10.0 * (stamp(path) - START_NS) * 1e-9 / 30.0
        here = 30 * np.array([np.sin(angle), 1 - np.cos(angle)])
        ahead = np.array([np.cos(angle), np.sin(angle)])  # the null engine's first sample goes straight on
        expected = here + 10.0 * np.arange(1, HORIZON + 1)[:, None] * 0.1 * ahead
        assert xyz(path)[:, :2] == pytest.approx(expected, abs=0.02)


def test_or_in_base_link_if_asked_for(tmp_path: Path) -> None:
    _, found = results(tmp_path, rig(selection="first", output_frame="base_link"))
    for _, path in found["path"]:
        assert path.header.frame_id == "base_link"
        assert xyz(path)[:, 0] == pytest.approx(10.0 * np.arange(1, HORIZON + 1) * 0.1, abs=0.02)


def test_what_was_driven_lies_beside_it_in_the_odometrys_frame(tmp_path: Path) -> None:
    settings = rig()
    with BagReader(write_bag(tmp_path / "drive", record(circle(10.0, 30.0), 9))) as reader:
        inputs = BagInputs(reader, settings)
        truth = GroundTruth(inputs.recorded_poses())
        ticks = [tick for tick in Replay(inputs, settings, NullEngine()) if tick.observation is not None]
    with ResultBag(tmp_path / "results", settings, INFO) as bag:
        for tick in ticks:
            bag.write_driven(tick, truth.future(tick.observation.t0_ns))  # type: ignore[union-attr]
    with BagReader(tmp_path / "results") as reader:
        paths = [message.message for message in reader.messages(["/alpamayo/evaluation/driven_path"])]
    assert len(paths[0].poses) == HORIZON
    assert len(paths[-1].poses) < HORIZON  # the drive ends
    for path in paths:
        seconds = np.array([stamp(pose) - START_NS for pose in path.poses]) * 1e-9
        angle = 10.0 * seconds / 30.0
        circle_points = 30 * np.stack([np.sin(angle), 1 - np.cos(angle), 0 * angle], axis=-1)
        assert xyz(path).reshape(-1, 3) == pytest.approx(circle_points, abs=0.01)


def test_candidates_are_all_samples_and_say_which_was_chosen(tmp_path: Path) -> None:
    _, found = results(tmp_path, rig(sampling__num_samples=3))
    for (_, candidates), (_, path) in zip(found["candidates"], found["path"], strict=True):
        assert len(candidates.candidates) == len(candidates.reasoning) == 3
        chosen = candidates.candidates[candidates.chosen]
        first, at_path = chosen.points[0].pose.position, path.poses[0].pose.position
        assert (first.x, first.y) == (at_path.x, at_path.y)


def test_a_skipped_tick_has_a_status_that_says_why(tmp_path: Path) -> None:
    ticks, found = results(tmp_path, rig())
    assert len(found["status"]) == len(ticks)
    skipped = [status for _, status in found["status"] if not status.ok]
    assert {status.skip_reason for status in skipped} == {str(t.skip.reason) for t in ticks if t.skip is not None}
    assert skipped
    for status in skipped:
        assert status.skip_reason in json.loads(status.detail)
    last = found["status"][-1][1]
    assert last.ticks_published + last.ticks_skipped == len(ticks)
    assert sum(last.skip_counts) == last.ticks_skipped


def test_markers_are_those_of_the_node(tmp_path: Path) -> None:
    ticks, found = results(tmp_path, rig(sampling__num_samples=3, output__empty_after_skips=2))
    good = [tick for tick in ticks if tick.skip is None]
    drawn = [message for _, message in found["markers"] if len(message.markers) > 1]
    assert [stamp(message.markers[0]) for message in drawn] == [tick.t0_ns for tick in good]
    for message, (_, path) in zip(drawn, found["path"], strict=True):
        gone, line, ribbon, *fan, text = message.markers
        assert (gone.ns, gone.action, line.ns, ribbon.ns, text.ns) == ("skip", 2, "path", "ribbon", "reasoning")
        assert [(each.ns, each.id) for each in fan] == [("candidates", 0), ("candidates", 1), ("candidates", 2)]
        assert np.array([[p.x, p.y, p.z] for p in line.points]) == pytest.approx(xyz(path))
        assert line.header.frame_id == "odom"
        assert text.text == "Keep the speed."
    told = [message.markers[0] for _, message in found["markers"] if len(message.markers) == 1]
    assert [marker.text for marker in told]
    assert all(marker.text.startswith("no path: ") and marker.color.r > 0.9 > marker.color.g for marker in told)


@pytest.fixture
def played_beside(tmp_path: Path) -> tuple[list[Tick], Path, Path]:
    """The ticks of a drive, its bag and the result bag."""
    settings, drive = rig(), write_bag(tmp_path / "drive", record(circle(10.0, 30.0), 4))
    with BagReader(drive) as reader:
        ticks = list(Replay(BagInputs(reader, settings), settings, NullEngine(delay=0.005)))
    with ResultBag(tmp_path / "results", settings, INFO) as bag:
        for tick in ticks:
            bag.write(tick)
    return ticks, drive, tmp_path / "results"


def test_a_reader_that_knows_no_ros_finds_definitions_and_times(played_beside: tuple[list[Tick], Path, Path]) -> None:
    reader = pytest.importorskip("mcap.reader", reason="the mcap library is not installed: make setup")
    ticks, drive, results_bag = played_beside
    (file,) = results_bag.glob("*.mcap")
    expected = {tick.now_ns + round(tick.engine_ms * 1e6) for tick in ticks}
    times, definitions = [], {}
    with file.open("rb") as stream:
        for schema, channel, message in reader.make_reader(stream).iter_messages():
            assert (channel.message_encoding, schema.encoding) == ("cdr", "ros2msg")
            definitions[schema.name] = schema.data.decode()
            times.append(message.log_time)
    assert set(times) == expected
    assert times == sorted(times)
    # each holds those that it is made of
    assert "MSG: alpamayo_ros/TrajectoryPoint" in definitions["alpamayo_ros/msg/Trajectory"]
    assert "MSG: alpamayo_ros/Trajectory\n" in definitions["alpamayo_ros/msg/TrajectoryCandidates"]
    assert "MSG: geometry_msgs/Quaternion" in definitions["nav_msgs/msg/Path"]
    assert "MSG: std_msgs/ColorRGBA" in definitions["visualization_msgs/msg/MarkerArray"]
    with BagReader(drive) as original:
        assert original.start_ns < min(times)
        assert max(times) < original.end_ns + 1_000_000_000


def test_rosbags_reads_it_by_its_own_definitions_alone(played_beside: tuple[list[Tick], Path, Path]) -> None:
    from rosbags.highlevel import AnyReader

    ticks, _, results_bag = played_beside
    good = {tick.t0_ns: tick for tick in ticks if tick.skip is None}
    with AnyReader([results_bag]) as reader:
        kinds = {connection.topic: connection.msgtype for connection in reader.connections}
        assert kinds[f"{OUTPUT}/status"] == "alpamayo_ros/msg/InferenceStatus"
        seen = set()
        for connection, at_ns, data in reader.messages():
            message = reader.deserialize(data, connection.msgtype)
            if connection.topic == f"{OUTPUT}/trajectory":
                t0_ns = stamp(message)
                seen.add(t0_ns)
                assert at_ns == good[t0_ns].now_ns + round(good[t0_ns].engine_ms * 1e6)
                assert len(message.points) == HORIZON
    assert seen == set(good)
