"""A clip of PhysicalAI-Autonomous-Vehicles becomes a bag; and from there a report, as the documentation says."""

import json
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from landmark import LAMP, SeenBag, make

from alpamayo_ros.evaluation.rig import load_rig
from alpamayo_ros.tools.make_bag import main

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install pyarrow")

from physical_ai_clip import CAMERAS, CLIP, OTHER, make_clip, parquet

ROOT = Path(__file__).parents[3]
NAMES = ("front_wide", "cross_left", "cross_right", "front_tele")


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clip(tmp_path_factory.mktemp("physical_ai"), seconds=1.5)


def test_the_lamp_is_where_every_camera_sees_it(clip: Path, tmp_path: Path) -> None:
    assert make(main, "physical_ai", clip, "--clip", CLIP, "--out", tmp_path / "bag") == 0
    bag = SeenBag(tmp_path / "bag")
    bag.check_left_turn()
    for camera in NAMES:
        errors = bag.lamp_errors(camera, LAMP)
        assert len(errors) == 46
        assert max(errors) < 1.0  # pixels: the video, and equidistant in place of f-theta
        assert bag.camera(camera).distortion_model == "equidistant"
    assert np.allclose(bag.camera("front_wide").position, CAMERAS["camera_front_wide_120fov"][:3, 3])


def test_time_0_of_the_clip_is_1000000000_s(clip: Path, tmp_path: Path) -> None:
    make(main, "physical_ai", clip, "--clip", CLIP, "--cameras", "front_wide", "--out", tmp_path / "bag")
    bag = SeenBag(tmp_path / "bag")
    assert next(iter(bag.images("front_wide"))) == 10**18 - 14_200_000
    odometry = bag.odometry()
    assert odometry.stamps[0] == 10**18 - 200_000_000
    at = int(np.flatnonzero(odometry.stamps == 10**18)[0])
    assert np.allclose(odometry.position[at], 0, atol=1e-9)


def test_unpacked_archives_are_read_too(clip: Path, tmp_path: Path) -> None:
    for path in clip.rglob("*.zip"):
        out = tmp_path / "unpacked" / path.parent.relative_to(clip) / path.stem
        with zipfile.ZipFile(path) as archive:
            archive.extractall(out)
    (tmp_path / "unpacked" / "calibration").symlink_to(clip / "calibration")
    arguments = ["--clip", CLIP, "--every", "3"]
    assert make(main, "physical_ai", tmp_path / "unpacked", *arguments, "--out", tmp_path / "a") == 0
    assert make(main, "physical_ai", clip, *arguments, "--out", tmp_path / "b") == 0
    a, b = ([(m.topic, m.data) for m in SeenBag(tmp_path / name).reader.raw_messages()] for name in "ab")
    assert a == b


def test_the_rig_for_it_has_the_same_topics(clip: Path, tmp_path: Path) -> None:
    make(main, "physical_ai", clip, "--clip", CLIP, "--every", "9", "--out", tmp_path / "bag")
    rig = load_rig(ROOT / "config" / "physical_ai_4cam.yaml")
    assert {f"/{camera.topic}" for camera in rig.cameras} <= SeenBag(tmp_path / "bag").reader.topics.keys()


def test_without_calibration_there_is_a_note_and_no_camera_info(
    clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for name in ("camera", "labels"):
        (tmp_path / "part").mkdir(exist_ok=True)
        (tmp_path / "part" / name).symlink_to(clip / name)
    assert make(main, "physical_ai", tmp_path / "part", "--clip", CLIP, "--out", tmp_path / "bag") == 0
    assert "camera_intrinsics has nothing of this clip: the bag has no CameraInfo" in capsys.readouterr().out
    assert not any("camera_info" in topic for topic in SeenBag(tmp_path / "bag").reader.topics)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "has 2 clips"),
        (["--clip", "none"], "has no video of the clip none"),
        (["--clip", CLIP, "--cameras", "rear_tele"], "has no"),
        (["--clip", OTHER, "--cameras", "front_wide"], f"has no {OTHER}.camera_front_wide_120fov.mp4"),
    ],
)
def test_a_choice_that_is_none(
    clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    assert make(main, "physical_ai", clip, *arguments, "--out", tmp_path / "bag") == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"nothing", "expected a Parquet file"),
        (None, "has no column qw; it has timestamp, x"),
        (b"", "expected a Parquet file"),
    ],
)
def test_a_bad_table_is_named(
    clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture, data: bytes | None, message: str
) -> None:
    folder = tmp_path / "bad" / "labels" / "egomotion"
    folder.mkdir(parents=True)
    (tmp_path / "bad" / "camera").symlink_to(clip / "camera")
    columns = {name: [0] for name in ("timestamp", "x", "y", "z", "qx", "qy", "qz")}
    (folder / f"{CLIP}.egomotion.parquet").write_bytes(parquet(columns) if data is None else data)
    assert make(main, "physical_ai", tmp_path / "bad", "--out", tmp_path / "bag") == 1
    error = capsys.readouterr().err
    assert message in error
    assert "egomotion.parquet" in error


def test_without_pyarrow_the_error_says_what_to_install(
    clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert make(main, "physical_ai", clip, "--clip", CLIP, "--out", tmp_path / "bag") == 1
    assert "pyarrow is not installed: pip install pyarrow" in capsys.readouterr().err


def test_from_a_clip_to_a_report_in_the_three_commands_of_the_page(tmp_path: Path) -> None:
    make_clip(tmp_path / "physical_ai", seconds=3.4, rate=10)
    page = (ROOT / "docs" / "evaluation.md").read_text()
    section = page.split("## From a clip of PhysicalAI to a report")[1].split("\n## ")[0]
    block = re.search(r"(?:^    .*\n)+", section, re.MULTILINE)
    assert block is not None
    commands = [line.strip() for line in block.group().replace("\\\n", " ").splitlines()]
    assert len(commands) == 3
    for command in commands:
        words = [sys.executable if word == ".venv/bin/python" else word for word in shlex.split(command)]
        words = [str(tmp_path / "physical_ai") if word == "PHYSICAL_AI" else word for word in words]
        words = [CLIP if word == "CLIP_ID" else word for word in words]
        words = [str(ROOT / word) if word.startswith("config/") else word for word in words]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, (words, done.stderr)
    report = json.loads((tmp_path / "out" / "report" / "report.json").read_text())
    assert report["ticks"]["ok"] >= 3
    assert report["no_overlay"] is None
    assert (tmp_path / "out" / "report" / "report.html").stat().st_size > 10_000
