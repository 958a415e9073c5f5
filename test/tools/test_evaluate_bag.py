"""`evaluate_bag` from its command line to its files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import pytest
from drives import Message, circle, record, straight, write_bag
from pages import Page

from alpamayo_ros.engine.factory import KINDS
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.tools import make_bag
from alpamayo_ros.tools.evaluate_bag import build_parser, main

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
KITTI = DATA / "kitti06_stereo"


@pytest.fixture(scope="module")
def kitti(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """KITTI's drive as a bag."""
    if not KITTI.is_dir():
        pytest.skip(f"{KITTI} is not here")
    bag = tmp_path_factory.mktemp("kitti") / "kitti06"
    arguments = ["images", "--times", str(KITTI / "times.txt"), "--out", str(bag)]
    arguments += ["--camera", f"front_wide={KITTI / 'image_l'}", "--camera", f"front_tele={KITTI / 'image_r'}"]
    arguments += ["--poses", str(KITTI / "poses_full_06.txt"), "--pose-format", "kitti"]
    assert make_bag.main(arguments) == 0
    return bag


def run(bag: Path, rig: Path, out: Path, *arguments: str) -> int:
    """With one picture on the page, unless the arguments say how many: each takes a tenth of a second."""
    return main([str(bag), "--config", str(rig), "--out", str(out), "--pictures", "1", *arguments])


def read(out: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The report and the ticks; refuses NaN, which is no JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    report = json.loads((out / "report.json").read_text(), parse_constant=refuse)
    lines = (out / "ticks.jsonl").read_text().splitlines()
    return report, [json.loads(line, parse_constant=refuse) for line in lines]


class TestADriveAlongACircle:
    """Sixteen seconds, with a gap in the odometry near the end."""

    @pytest.fixture
    def bag(self, tmp_path: Path) -> Path:
        def kept(message: Message) -> bool:
            return message.topic != "/odometry" or not 13.05 < message.seconds < 13.75

        return write_bag(tmp_path / "drive", list(filter(kept, record(circle(8.0, 40.0), 16))))

    def test_the_report_adds_up(self, tmp_path: Path, bag: Path, rig: Path) -> None:
        assert run(bag, rig, tmp_path / "out", "--stride", "0.1", "--samples", "7") == 0
        report, ticks = read(tmp_path / "out")
        counts = report["ticks"]
        assert counts["total"] == len(ticks) == counts["ok"] + counts["skipped"]
        assert counts["skipped"] == sum(report["skips"].values())
        for reason, count in report["skips"].items():
            assert count == sum(tick["skip"] == reason for tick in ticks)
        assert report["skips"]["odometry_gap"] > 5
        assert counts["ok"] == sum(tick["metrics"] is not None for tick in ticks)
        full = [tick for tick in ticks if tick["metrics"] and tick["metrics"]["recorded_steps"] == 64]
        assert counts["with_full_future"] == len(full) == report["metrics"]["min_ade"]["6"]["n"]
        assert len(full) > 40
        for stream in (report["inputs"].get("cameras", report["inputs"])["front_wide"], report["inputs"]["odometry"]):
            assert stream["received"] == stream["used"] + stream["waiting"] + sum(stream["dropped"].values())

    def test_the_best_of_the_fan_turns_with_the_circle(self, tmp_path: Path, bag: Path, rig: Path) -> None:
        # samples curve by 0, 0.005, -0.005, 0.01, -0.01, 0.015, -0.015 1/m; the circle by 0.025
        assert run(bag, rig, tmp_path / "out", "--samples", "7", "-p", "selection:=first") == 0
        metrics = read(tmp_path / "out")[0]["metrics"]
        straight_on, best = metrics["chosen"]["ade"]["6.4"]["mean"], metrics["best"]["ade"]["6.4"]["mean"]
        assert straight_on == pytest.approx(metrics["baselines"]["constant_velocity"]["ade"]["6.4"]["mean"], rel=0.05)
        assert best < 0.5 * straight_on
        assert metrics["chosen"]["lateral"]["6.4"]["mean"] < -10  # to the right of the circle to the left

    def test_the_skips_before_the_first_path_are_counted_apart_and_explained(
        self, tmp_path: Path, bag: Path, rig: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(bag, rig, tmp_path / "out", "--stride", "0.5") == 0
        report, ticks = read(tmp_path / "out")
        first = next(number for number, tick in enumerate(ticks) if tick["skip"] is None)
        assert report["skips_before_first_path"] == first > 10
        assert (
            f"{first} of these before the first path: until then a tick is tried every 0.1 s" in capsys.readouterr().out
        )

    @pytest.mark.parametrize(("wanted", "shown"), [([], 10), (["--pictures", "3"], 3), (["--pictures", "0"], 0)])
    def test_the_page_shows_the_worst_ticks(
        self, tmp_path: Path, bag: Path, rig: Path, wanted: list[str], shown: int
    ) -> None:
        assert main([str(bag), "--config", str(rig), "--out", str(tmp_path / "out"), *wanted]) == 0
        page = Page((tmp_path / "out" / "report.html").read_text())
        assert sum(picture.startswith(b"\xff\xd8") for picture in page.images) == shown  # JPEG; charts are SVG
        assert page.text.count("after the start:") == shown

    def test_nothing_but_the_results_is_left(self, tmp_path: Path, bag: Path, rig: Path) -> None:
        assert run(bag, rig, tmp_path / "results" / "out") == 0
        assert sorted(file.name for file in (tmp_path / "results").iterdir()) == ["out"]
        files = {file.name for file in (tmp_path / "results" / "out").iterdir()} - {"ticks.parquet"}  # by pyarrow alone
        assert sorted(files) == ["report.html", "report.json", "result_bag", "tick.png", "ticks.jsonl"]

    def test_the_same_seed_gives_the_same_ticks_in_whatever_process(self, tmp_path: Path, bag: Path, rig: Path) -> None:
        lines = []
        for process in ("in_process", "auto", "subprocess"):
            assert run(bag, rig, tmp_path / process, "-p", f"engine.process:={process}") == 0
            lines.append([{**tick, "timings_ms": None} for tick in read(tmp_path / process)[1]])
        assert lines[0] == lines[1] == lines[2]
        assert run(bag, rig, tmp_path / "c", "--seed", "5") == 0
        assert [tick["seed"] for tick in read(tmp_path / "c")[1]] != [tick["seed"] for tick in lines[0]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_engine_can_be_asked_for(kind: str) -> None:
    options = ["drive", "--config", "rig.yaml", "--out", "out", "--engine", kind]
    assert build_parser().parse_args(options).engine == kind


def test_constant_velocity_is_right_on_a_straight_drive(
    tmp_path: Path, rig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_bag(tmp_path / "drive", record(straight(9.0), 10))
    assert run(bag, rig, tmp_path / "out") == 0
    metrics = read(tmp_path / "out")[0]["metrics"]
    assert metrics["baselines"]["constant_velocity"]["ade"]["6.4"]["mean"] < 1e-4
    assert metrics["min_ade"]["1"]["mean"] < 1e-4  # the null engine's first sample
    said = capsys.readouterr().out
    for expected in (
        "constant velocity",
        "open-loop",
        "null engine",
        str(tmp_path / "out" / "report.json"),
        "tick.png",
    ):
        assert expected in said


def test_a_bag_that_gives_no_path_still_gives_a_report_and_an_exit_code(
    tmp_path: Path, rig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_bag(tmp_path / "drive", record(straight(9.0), 1))
    assert run(bag, rig, tmp_path / "out") == 1
    report, _ = read(tmp_path / "out")
    assert report["ticks"]["ok"] == 0
    assert report["files"]["picture"] is None
    said = capsys.readouterr().out
    assert "ego_history_short" in said
    assert "0 of" in said


def test_a_limit_that_is_broken_is_a_status_of_its_own(
    tmp_path: Path, rig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_bag(tmp_path / "drive", record(straight(9.0), 10))
    assert run(bag, rig, tmp_path / "kept", "--fail-above", "minADE1=0.1", "--fail-above", "skipped=0.9") == 0
    assert run(bag, rig, tmp_path / "broken", "--fail-above", "minADE1=0.1", "--fail-above", "skipped=0.01") == 3
    assert "failed: skipped is" in capsys.readouterr().err
    assert (tmp_path / "broken" / "report.html").exists()


class TestWrongInput:
    @pytest.fixture
    def bag(self, tmp_path: Path) -> Path:
        return write_bag(tmp_path / "drive", record(straight(9.0), 1))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--engine", "transformers"], "checkpoint"),
            (["--engine", "transformers", "--checkpoint", "/nowhere/at/all"], "/nowhere/at/all"),
            (["--engine", "vllm"], "vllm"),
            (["--stride", "0.05"], "--stride is 0.05: it must be from 0.1 to 10 s"),
            (["--pictures", "-1"], "--pictures is -1: it must be at least 0"),
            (["--samples", "0"], "sampling.num_samples is 0"),
            (["--odometry-topic", "/odom"], "/odom"),
            (["-p", "rate"], "--parameter rate: expected NAME:=VALUE"),
            (["-p", "sync_tolerence:=0.1"], "did you mean sync_tolerance"),
            (["-p", "rate_hz:=5"], "rate_hz:=5: give --stride"),
            (["-p", "cameras.front_wide.topic:=odometry"], "/odometry is the topic of front_wide and of the odometry"),
            (
                ["-p", "cameras.rear_tele.topic:=camera/front_wide/image/compressed"],
                "/camera/front_wide/image/compressed is the topic of front_wide and of rear_tele: each needs its own",
            ),
        ],
    )
    def test_it_is_named_and_nothing_is_written(
        self,
        tmp_path: Path,
        bag: Path,
        rig: Path,
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
        message: str,
    ) -> None:
        assert run(bag, rig, tmp_path / "out", *arguments) == 1
        said = capsys.readouterr().err
        assert message in said
        assert "Traceback" not in said
        assert not (tmp_path / "out").exists()

    def test_a_missing_bag_and_a_missing_config_are_named(
        self, tmp_path: Path, bag: Path, rig: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(tmp_path / "no_bag", rig, tmp_path / "out") == 1
        assert "there is no bag at" in capsys.readouterr().err
        assert run(bag, tmp_path / "no.yaml", tmp_path / "out") == 1
        assert "there is no parameter file at" in capsys.readouterr().err

    def test_a_place_that_is_taken_is_refused_before_anything_runs(
        self, tmp_path: Path, bag: Path, rig: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "precious").touch()
        assert run(bag, rig, tmp_path / "out", "--overwrite") == 1
        assert "holds no evaluation" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["ins_navsat_drive_DIT_Loop", "oxts_ins_start_position_A"])
    def test_recorded_bags_without_cameras(
        self, tmp_path: Path, rig: Path, capsys: pytest.CaptureFixture[str], name: str
    ) -> None:
        bag = DATA / "bags" / name
        if not bag.is_dir():
            pytest.skip(f"{bag} is not here")
        assert run(bag, rig, tmp_path / "out") == 1
        said = capsys.readouterr().err
        assert "/camera/front_wide/image/compressed" in said
        with BagReader(bag) as reader:
            assert all(topic in said for topic in reader.topics)

    def test_a_truncated_bag_is_evaluated_up_to_the_damage(
        self, tmp_path: Path, rig: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        bag = write_bag(tmp_path / "long", record(straight(9.0), 12))
        (file,) = bag.glob("*.mcap")
        data = file.read_bytes()
        file.write_bytes(data[: len(data) * 3 // 4])
        assert run(bag, rig, tmp_path / "out") == 0
        report, _ = read(tmp_path / "out")
        assert any("damaged" in warning for warning in report["bag"]["warnings"])
        assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_after_a_signal_the_same_command_goes_on(
    tmp_path: Path, rig: Path, capsys: pytest.CaptureFixture[str], number: int, status: int
) -> None:
    bag = write_bag(tmp_path / "drive", record(straight(9.0), 25))
    results = tmp_path / "results"
    arguments = [str(bag), "--config", str(rig), "--out", str(results / "out"), "--stride", "0.2", "--pictures", "1"]
    command = [sys.executable, "-m", "alpamayo_ros.tools.evaluate_bag", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT
    ) as process:
        given_up = time.monotonic() + 60
        while len(list(results.glob(".out.unfinished/*.npz"))) < 5 and time.monotonic() < given_up:
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == status
    assert "the same command goes on from there" in said.decode()
    assert "Traceback" not in said.decode()
    assert [file.name for file in results.iterdir()] == [".out.unfinished"]
    known = len(list(results.glob(".out.unfinished/*.npz")))
    capsys.readouterr()
    assert main(arguments) == 0
    assert f"going on with an interrupted run: {known} ticks" in capsys.readouterr().err
    assert [file.name for file in results.iterdir()] == ["out"]
    assert run(bag, rig, tmp_path / "at_once", "--stride", "0.2") == 0
    resumed, at_once = (
        [{**tick, "timings_ms": None} for tick in read(out)[1]] for out in (results / "out", tmp_path / "at_once")
    )
    assert resumed == at_once


def test_an_interrupted_model_goes_on_to_the_same_report(tmp_path: Path, rig: Path) -> None:
    from alpamayo_ros.tools import make_checkpoint

    checkpoint = tmp_path / "tiny"
    assert make_checkpoint.main(["--preset", "tiny", "--seed", "0", "--out", str(checkpoint)]) == 0
    bag = write_bag(tmp_path / "drive", record(circle(8.0, 40.0), 5))
    arguments = ["--engine", "transformers", "--checkpoint", str(checkpoint), "--device", "cpu", "--samples", "2"]
    arguments += ["-p", "sampling.max_reasoning_tokens:=8", "--stride", "0.2"]
    command = [sys.executable, "-m", "alpamayo_ros.tools.evaluate_bag", str(bag), "--config", str(rig), *arguments]
    interrupted, at_once = tmp_path / "interrupted", tmp_path / "at_once"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([*command, "--out", str(interrupted)], env=environment, cwd=ROOT) as process:
        given_up = time.monotonic() + 120
        while len(list(tmp_path.glob(".interrupted.unfinished/*.npz"))) < 5 and time.monotonic() < given_up:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    known = len(list(tmp_path.glob(".interrupted.unfinished/*.npz")))
    assert run(bag, rig, interrupted, *arguments) == 0
    assert run(bag, rig, at_once, *arguments) == 0
    (resumed, resumed_ticks), (report, ticks) = read(interrupted), read(at_once)
    assert 5 <= known < report["ticks"]["ok"]
    assert report["trained"] is False
    # the first tick after the interruption has to encode all of its frames
    measured = dict.fromkeys(("timings_ms", "frames_encoded", "frames_reused"))
    assert [{**tick, **measured} for tick in resumed_ticks] == [{**tick, **measured} for tick in ticks]
    assert {**resumed, "timings_ms": None} == {**report, "timings_ms": None}


class TestKitti:
    def test_the_null_engine_drives_it(self, tmp_path: Path, kitti: Path) -> None:
        rig = ROOT / "config" / "kitti_stereo.yaml"
        assert run(kitti, rig, tmp_path / "out", "--engine", "null") == 0
        report, ticks = read(tmp_path / "out")
        assert report["ticks"]["ok"] >= 6
        assert report["metrics"]["chosen"]["ade"]["6.4"]["n"] == report["ticks"]["ok"]  # poses go on for 114 s
        assert report["metrics"]["baselines"]["stop"]["fde"]["1.0"]["mean"] == pytest.approx(11.5, abs=0.5)
        assert report["metrics"]["baselines"]["constant_velocity"]["fde"]["1.0"]["mean"] < 0.5
        picture = cv2.imread(str(tmp_path / "out" / "tick.png"))
        assert picture is not None
        assert picture.shape == (750, 1200, 3)
        with BagReader(tmp_path / "out" / "result_bag") as results:
            assert results.count("/alpamayo/output/path") == report["ticks"]["ok"]
            assert results.count("/alpamayo/output/status") == len(ticks)

    def test_a_tiny_checkpoint_drives_it_and_is_called_random(
        self, tmp_path: Path, kitti: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from alpamayo_ros.tools import make_checkpoint

        checkpoint = tmp_path / "tiny"
        assert make_checkpoint.main(["--preset", "tiny", "--seed", "0", "--out", str(checkpoint)]) == 0
        base = tmp_path / "base"
        base.mkdir()
        (checkpoint / "vlm_base" / "tokenizer.json").rename(base / "tokenizer.json")
        rig = ROOT / "config" / "kitti_stereo.yaml"
        arguments = ["--checkpoint", str(checkpoint), "--base-model", str(base), "--device", "cpu"]
        arguments += ["--samples", "2", "--stride", "1.0"]
        arguments += ["-p", "sampling.max_reasoning_tokens:=8"]
        assert run(kitti, rig, tmp_path / "out", *arguments) == 0
        report, _ = read(tmp_path / "out")
        assert report["ticks"]["ok"] >= 3
        assert report["trained"] is False
        assert report["engine"]["checkpoint_hash"]
        assert "random" in " ".join(report["notes"])
        assert "random" in capsys.readouterr().out
