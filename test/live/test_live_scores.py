"""`evaluate_live` beside a node in a process of its own gives the errors that `evaluate_bag` gives for the same bag."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from drives import ODOMETRY, circle, image_topic, record, write_bag

from alpamayo_ros.evaluation.compare import differences, load_evaluation
from alpamayo_ros.tools import evaluate_bag, make_checkpoint
from alpamayo_ros.tools.live_paths import affordable_rate, drive_node

STRIDE, SAMPLES, SECONDS = 0.5, 3, 9.0
SLOW = 0.2  # times real time: a hold-up of half a second on a busy machine must not shift a tick by a frame
NOT_IN_MESSAGES = ("comfort", "within_bounds")  # the first action is missing


@contextmanager
def evaluating_live(rig: Path, out: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The evaluation, once it listens."""
    command = [sys.executable, "-m", "alpamayo_ros.tools.evaluate_live", "--config", str(rig), "--out", str(out)]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            given_up = time.monotonic() + 60
            while "listening" not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < given_up, log.read_text()
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


def scored(out: Path) -> dict[int, Any]:
    """Figures by t0 of the ticks that gave a path."""
    ticks = [json.loads(line) for line in (out / "ticks.jsonl").read_text().splitlines()]
    return {tick["t0_ns"]: tick["metrics"] for tick in ticks if tick["skip"] is None}


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if isinstance(value, dict):
        return {key: leaf for name, each in value.items() for key, leaf in leaves(each, (*path, name)).items()}
    return {path: value}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("engine", ["null", "tiny"])
def test_the_same_ticks_have_the_same_errors(tmp_path: Path, ros_domain: int, engine: str) -> None:
    bag = write_bag(tmp_path / "drive", record(circle(8.0, 40.0), SECONDS))
    cameras = {"front_wide": {"topic": image_topic("front_wide")}}
    odometry = {"topic": ODOMETRY, "reliability": "reliable"}
    parameters: dict[str, Any] = {"cameras": cameras, "odometry": odometry, "engine": {"kind": "null"}}
    checkpoint = None
    if engine == "tiny":
        checkpoint = tmp_path / "tiny"
        assert make_checkpoint.main(["--preset", "tiny", "--seed", "0", "--out", str(checkpoint)]) == 0
        parameters |= {"engine": {"kind": "transformers", "device": "cpu", "checkpoint": str(checkpoint)}}
    rig = tmp_path / "rig.yaml"
    rig.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    offline, live = tmp_path / "offline", tmp_path / "live"
    arguments = ["--config", rig, "--out", offline, "--stride", STRIDE, "--samples", SAMPLES]
    assert evaluate_bag.main([str(bag), *map(str, arguments)]) == 0

    play_rate = min(SLOW, affordable_rate(offline / "report.json", STRIDE))
    with evaluating_live(rig, live, tmp_path / "live.log") as evaluation:
        settings = {"rate_hz": 1 / STRIDE, "samples": SAMPLES, "play_rate": play_rate}
        # the evaluation too must have found the player before it begins, or the first histories are short
        drive_node(bag, rig, checkpoint, **settings, log=tmp_path / "node.log", delay=6.0)
        evaluation.send_signal(signal.SIGINT)
        said = lambda: (tmp_path / "live.log").read_text()  # noqa: E731
        assert evaluation.wait(60) == 0, said()

    expected, found = scored(offline), scored(live)
    assert sorted(found) == sorted(expected), said()
    assert sum(figures["recorded_steps"] == 64 for figures in expected.values()) >= 3
    for t0_ns, figures in expected.items():
        ours, theirs = leaves(found[t0_ns]), leaves(figures)
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            if name[0] not in NOT_IN_MESSAGES:
                assert ours[name] == (pytest.approx(value, abs=1e-6) if isinstance(value, float) else value), name
    report = json.loads((live / "report.json").read_text())
    assert report["live"]["incomplete"] == report["live"]["ticks_dropped"] == 0
    assert report["live"]["ticks_published"] == len(expected)
    assert report["live"]["age_at_publication_s"]["n"] == len(expected)
    assert report["settings"]["rate_hz"] == pytest.approx(1 / STRIDE)  # the running node's
    assert (live / "report.html").stat().st_size > 10_000
    run_differently = differences(load_evaluation(offline), load_evaluation(live))
    assert not any(name.startswith("engine") for name in run_differently)
