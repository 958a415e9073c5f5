"""A bag's scenario decides the ticks that the bag decides, with the same frames and history."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from drives import JPEG, ODOMETRY, START_NS, circle, record, rig, straight, write_bag

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import Observation
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.bag import BagReader, BagWriter, ros_types
from alpamayo_ros.evaluation.drive_bag import DriveBag
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.replay import Replay
from alpamayo_ros.evaluation.rig import load_rig
from alpamayo_ros.evaluation.scenario import parse_scenario
from alpamayo_ros.evaluation.simulation import simulate
from alpamayo_ros.tools import bag_to_scenario, make_bag

ROOT = Path(__file__).parents[2]
KITTI = ROOT.parent / "shared" / "data" / "kitti06_stereo"


def convert(bag: Path, out: Path, *options: str) -> list[dict[str, Any]]:
    """What the simulator says of a bag's scenario."""
    assert bag_to_scenario.main([str(bag), "--out", str(out), *options]) == 0
    with out.open("rb") as file:
        return list(simulate(parse_scenario(file)))


def replayed(bag: Path, settings: Settings) -> tuple[list[Observation], list[str]]:
    """The observations and the skip reasons of the evaluator's replay."""
    with BagReader(bag) as reader:
        ticks = list(Replay(BagInputs(reader, settings), settings, NullEngine()))
    made = [tick.observation for tick in ticks if tick.observation is not None]
    return made, [tick.skip.reason.value for tick in ticks if tick.skip is not None]


def assert_same(printed: list[dict[str, Any]], made: list[Observation], settings: Settings) -> None:
    good = [line for line in printed if line["ok"]]
    names = {camera.index: camera.name for camera in settings.cameras}
    assert [line["t0"] for line in good] == [round(each.t0_ns * 1e-9, 6) for each in made]
    for line, observation in zip(good, made, strict=True):
        stamps = {names[i]: [round(f.stamp_ns * 1e-9, 6) for f in frames] for i, frames in observation.frames.items()}
        assert line["frames"] == stamps
        assert np.array(line["ego_history"])[:, :3] == pytest.approx(observation.history_xyz, abs=1e-8)


@pytest.mark.parametrize("rate", [10.0, 2.0])
def test_a_bag_with_late_images(tmp_path: Path, rate: float) -> None:
    cameras = ("front_wide", "cross_left")
    lags = {"front": 0.04, "cross": 0.09, "odometry": 0.002}
    bag = write_bag(
        tmp_path / "bag",
        record(circle(8.0, 30.0), 4.0, cameras),
        lag=lambda message: next(lag for word, lag in lags.items() if word in message.topic),
    )
    settings = rig(cameras, rate_hz=rate)
    printed = convert(bag, tmp_path / "drive.jsonl", "-p", f"rate_hz:={rate}")
    made, skips = replayed(bag, settings)
    assert len(made) >= 5
    assert_same(printed, made, settings)
    assert [line["skip"] for line in printed if not line["ok"]] == skips


def test_with_the_nodes_parameter_file(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", record(straight(5.0), 3.0, ("front_wide", "cross_left")))
    file = tmp_path / "rig.yaml"
    parameters = {
        "cameras.front_wide.topic": "/camera/front_wide/image/compressed",
        "cameras.front_wide.time_offset": -0.02,
        "odometry.topic": ODOMETRY,
        "engine.kind": "null",
    }
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    printed = convert(bag, tmp_path / "drive.jsonl", "--config", str(file))
    made, _ = replayed(bag, load_rig(file))
    assert_same(printed, made, load_rig(file))
    assert all(list(line["frames"]) == ["front_wide"] for line in printed if line["ok"])


def test_cameras_are_named_by_what_tells_their_topics_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with BagWriter(tmp_path / "bag") as writer:
        drive = DriveBag(writer)
        drive.pose(START_NS, np.zeros(3), np.eye(3), np.zeros(3), np.zeros(3))
        types = ros_types().types
        header = types["std_msgs/msg/Header"](types["builtin_interfaces/msg/Time"](1, 0), "")
        data = np.frombuffer(JPEG, np.uint8)
        compressed = types["sensor_msgs/msg/CompressedImage"](header, "jpeg", data)
        raw = types["sensor_msgs/msg/Image"](header, 4, 6, "mono8", 0, 6, np.zeros(24, np.uint8))
        for topic in ("/sensors/left/image_raw/compressed", "/front_tele/image/compressed"):
            writer.write(topic, compressed, START_NS)
        for topic in ("/sensors/left/image_raw", "/camera/rear/image_raw"):
            writer.write(topic, raw, START_NS)
    assert bag_to_scenario.main([str(tmp_path / "bag")]) == 0
    first, *events = map(json.loads, capsys.readouterr().out.splitlines())
    assert {name: camera["index"] for name, camera in first["cameras"].items()} == {
        "rear": 0,
        "left": 1,
        "front_tele": 6,
    }
    sizes = {event["camera"]: event.get("height") for event in events if event["type"] == "frame"}
    assert sizes == {"rear": 4, "left": None, "front_tele": None}


def test_a_part_of_the_bag(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "bag", record(straight(5.0), 6.0))
    printed = convert(bag, tmp_path / "part.jsonl", "--start", "2", "--duration", "3")
    begin = START_NS * 1e-9 + 2
    assert printed[0]["at"] >= begin
    assert printed[-1]["at"] <= begin + 3
    assert printed[-1]["counts"]["front_wide"]["received"] == 31


def test_simulated_time_in_a_bag_is_the_clock(tmp_path: Path) -> None:
    """Recorded by the wall clock, years after the stamps."""
    shift = 10**17
    clock = ros_types().types["rosgraph_msgs/msg/Clock"]
    time = ros_types().types["builtin_interfaces/msg/Time"]
    with BagWriter(tmp_path / "bag") as writer:
        for message in record(straight(5.0), 3.0):
            seconds, nanoseconds = divmod(message.stamp_ns, 10**9)
            writer.write("/clock", clock(time(seconds, nanoseconds)), message.stamp_ns + shift)
            writer.write(message.topic, message.content, message.stamp_ns + shift)
    printed = convert(tmp_path / "bag", tmp_path / "drive.jsonl")
    assert sum(line["ok"] for line in printed) >= 15


def test_a_bag_that_gives_no_tick_says_why(tmp_path: Path) -> None:
    bag = write_bag(
        tmp_path / "bag", [m for m in record(straight(5.0), 0.1) if m.topic == ODOMETRY or m.stamp_ns == START_NS]
    )
    (line,) = convert(bag, tmp_path / "drive.jsonl")
    assert line["skip"] == "camera_gap"


@pytest.mark.parametrize(
    ("topics", "words"),
    [
        ({"front_wide"}, "has 0 topics of type nav_msgs/msg/Odometry, expected 1: give --odometry-topic"),
        ({"odometry"}, "has 0 image topics, expected 1 to 7: give --config"),
    ],
)
def test_a_bag_without_what_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], topics: set[str], words: str
) -> None:
    messages = [m for m in record(straight(5.0), 0.5) if any(topic in m.topic for topic in topics)]
    assert bag_to_scenario.main([str(write_bag(tmp_path / "bag", messages))]) == 1
    assert words in capsys.readouterr().err


def test_no_bag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bag_to_scenario.main([str(tmp_path / "nothing")]) == 1
    assert "there is no bag at" in capsys.readouterr().err


@pytest.mark.skipif(not KITTI.is_dir(), reason="the recorded KITTI drive is not beside the project")
def test_a_recorded_drive(tmp_path: Path) -> None:
    bag = tmp_path / "kitti06"
    images = ["--camera", f"front_wide={KITTI / 'image_l'}", "--camera", f"front_tele={KITTI / 'image_r'}"]
    recording = ["--times", KITTI / "times.txt", "--poses", KITTI / "poses_full_06.txt", "--pose-format", "kitti"]
    assert make_bag.main(["images", *images, *map(str, recording), "--out", str(bag), "--latency", "0.03"]) == 0
    printed = convert(bag, tmp_path / "drive.jsonl", "-p", "engine.kind:=null")
    cameras = ("front_wide", "front_tele")
    settings = rig(cameras, rate_hz=10.0)
    made, skips = replayed(bag, settings)
    assert len(made) == 36
    assert_same(printed, made, settings)
    # a scenario goes on to the bag's end, where the poses are that only the truth is for; the evaluator doesn't
    after = [line["skip"] for line in printed if not line["ok"]][len(skips) :]
    assert [line["skip"] for line in printed if not line["ok"]][: len(skips)] == skips
    assert set(after) == {"camera_stale"}


def test_a_time_that_is_none_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bag_to_scenario.main([str(tmp_path), "--start", "nan"])
    assert "argument --start: 'nan': expected a number" in capsys.readouterr().err
    for duration in ("nan", "0"):
        assert bag_to_scenario.main([str(tmp_path), "--duration", duration]) == 1
        assert f"--duration {float(duration)}: expected more than 0 s" in capsys.readouterr().err


def test_a_scenario_that_can_not_be_finished_leaves_the_one_that_was_there(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / "drive", record(straight(9.0), 4))
    (tmp_path / "drive.jsonl").write_text("precious")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))  # as a full disk
    try:
        assert bag_to_scenario.main([str(bag), "--out", str(tmp_path / "drive.jsonl")]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["drive", "drive.jsonl"]
    assert (tmp_path / "drive.jsonl").read_text() == "precious"
