"""Bags that are split, packed or cut: message for message what was recorded, and the same evaluation."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml
from drives import Message, circle, record
from odd_bags import CUT, WHOLE, mcap_file, packed, write
from rosbags.rosbag2 import CompressionMode, StoragePlugin

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagReader, ros_types
from alpamayo_ros.tools.evaluate_bag import main


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    """Eight seconds; images of noise, which no compression makes small."""
    noise = np.random.default_rng(0)
    found = record(circle(8.0, 40.0), 8)
    for message in found:
        if "image" in message.topic:
            message.content.data = cv2.imencode(".jpg", noise.integers(0, 256, (180, 240, 3), np.uint8))[1].ravel()
    return found


def wanted(messages: list[Message]) -> list[tuple[str, int, bytes]]:
    return [(m.topic, m.stamp_ns, bytes(ros_types().serialize_cdr(m.content, m.content.__msgtype__))) for m in messages]


def read(bag: BagReader) -> list[tuple[str, int, bytes]]:
    return [(m.topic, m.receive_ns, m.data) for m in bag.raw_messages()]


@pytest.mark.parametrize("shape", WHOLE)
def test_every_message_is_there(tmp_path: Path, messages: list[Message], shape: str) -> None:
    with BagReader(WHOLE[shape](tmp_path / "bag", messages)) as bag:
        assert sorted(read(bag)) == sorted(wanted(messages))
        assert bag.count("/odometry") == 401
        assert len(list(bag.messages(["/odometry"]))) == 401
        assert bag.start_ns == messages[0].stamp_ns
        assert bag.end_ns == messages[-1].stamp_ns
        assert bool(bag.warnings) == ("without_metadata" in shape or shape == "mcap_without_index")


@pytest.mark.parametrize("shape", CUT)
def test_a_cut_bag_is_read_up_to_the_cut(tmp_path: Path, messages: list[Message], shape: str) -> None:
    with BagReader(CUT[shape](tmp_path / "bag", messages)) as bag:
        found = read(bag)
        assert any("is damaged" in warning and str(tmp_path) in warning for warning in bag.warnings)
    assert found == wanted(messages)[: len(found)]
    assert 0.3 * len(messages) < len(found) < len(messages)


def test_what_was_unpacked_is_removed(tmp_path: Path, messages: list[Message], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with BagReader(WHOLE["zstd_file"](tmp_path / "bag", messages)) as bag:
        assert list((tmp_path / "temporary").iterdir())
        assert bag.count("/odometry") == 401
    assert not list((tmp_path / "temporary").iterdir())


def test_a_file_that_only_looks_packed_is_named(tmp_path: Path) -> None:
    file = tmp_path / "drive.mcap.zstd"
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(ConfigurationError, match=r"drive\.mcap\.zstd can't be unpacked"):
        BagReader(file)


def test_a_packed_message_that_is_damaged_is_left_out(tmp_path: Path, messages: list[Message]) -> None:
    bag = write(tmp_path / "bag", messages, StoragePlugin.MCAP, CompressionMode.MESSAGE)
    file = mcap_file(bag)
    data = bytearray(file.read_bytes())
    frame = data.index(b"\x28\xb5\x2f\xfd", len(data) // 2)
    data[frame + 4 : frame + 12] = b"\xff" * 8
    file.write_bytes(bytes(data))
    with BagReader(bag) as reader:
        assert len(read(reader)) == len(messages) - 1
        assert "can't be unpacked, and is left out" in reader.warnings[0]


def evaluate(bag: Path, folder: Path) -> dict:
    rig = folder / "rig.yaml"
    parameters = {
        "cameras": {"front_wide": {"topic": "/camera/front_wide/image/compressed"}},
        "odometry": {"topic": "/odometry"},
        "engine": {"kind": "null"},
    }
    rig.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    assert main([str(bag), "--config", str(rig), "--out", str(folder / "out"), "--pictures", "1"]) == 0
    report = json.loads((folder / "out" / "report.json").read_text())
    ticks = [json.loads(line) for line in (folder / "out" / "ticks.jsonl").read_text().splitlines()]
    return {"ticks": [(tick["t0_ns"], tick["skip"], tick["metrics"]) for tick in ticks], "report": report}


@pytest.fixture(scope="module")
def plain(messages: list[Message], tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("plain")
    return evaluate(packed(StoragePlugin.MCAP, CompressionMode.NONE)(folder / "bag", messages), folder)


@pytest.mark.parametrize("shape", WHOLE)
def test_the_evaluation_is_that_of_a_plain_bag(
    tmp_path: Path, messages: list[Message], plain: dict, shape: str
) -> None:
    found = evaluate(WHOLE[shape](tmp_path / "bag", messages), tmp_path)
    assert found["ticks"] == plain["ticks"]
    assert found["report"]["metrics"] == plain["report"]["metrics"]
    assert found["report"]["ticks"]["ok"] > 10


@pytest.mark.parametrize("shape", CUT)
def test_a_cut_bag_gives_the_ticks_up_to_the_cut(
    tmp_path: Path, messages: list[Message], plain: dict, shape: str
) -> None:
    found = evaluate(CUT[shape](tmp_path / "bag", messages), tmp_path)
    times = [(t0_ns, skip) for t0_ns, skip, _ in found["ticks"]]
    assert len(times) > 10
    assert times == [(t0_ns, skip) for t0_ns, skip, _ in plain["ticks"]][: len(times)]
    assert any("is damaged" in warning for warning in found["report"]["bag"]["warnings"])
