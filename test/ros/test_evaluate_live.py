"""`evaluate_live` beside a node that drives."""

import json
import threading

import pytest
import yaml
from live import FRONT
from nav_msgs.msg import Path

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.tools.evaluate_live import build_parser, evaluate, main


@pytest.fixture
def rig(tmp_path):
    file = tmp_path / "rig.yaml"
    file.write_text(yaml.safe_dump({"/**": {"ros__parameters": {**FRONT, "engine.kind": "null"}}}))
    return file


def test_a_straight_drive_is_scored_while_it_happens(live, evaluating_live):
    live.node(selection="first")
    driver = live.driver(speed=10.0)
    driven = []
    driver.create_subscription(Path, "/alpamayo/evaluation/driven_path", driven.append, 100)
    with evaluating_live(driver, [driver.odometry]) as out:
        driver.play(seconds=12.0)
        driver.wait_for("path")
    report = json.loads((out / "report.json").read_text())
    ticks = [json.loads(line) for line in (out / "ticks.jsonl").read_text().splitlines()]
    scored = [tick for tick in ticks if tick["skip"] is None]
    assert len(scored) == report["ticks"]["ok"] > 3
    ade = report["metrics"]["chosen"]["ade"]["1.0"]
    assert ade["n"] > 3
    assert ade["mean"] < 0.02  # straight on, as the null engine predicts
    assert report["live"]["age_at_publication_s"]["n"] >= len(scored)
    assert report["live"]["ticks_published"] >= len(scored) - 1
    assert report["timings_ms"]["predict"]["n"] == len(scored)
    assert report["engine"]["engine"] == "null"
    assert report["settings"]["selection"] == "first"  # the node's, not the file's
    assert report["bag"]["topics"]["/odometry"]["messages"] > 64
    assert report["bag"]["duration_s"] < 60
    page = (out / "report.html").read_text()
    assert "age at publication" in page
    assert page.count("data:image/jpeg") == min(10, len(scored))
    whole = [tick for tick in scored if tick["metrics"]["recorded_steps"] == 64]
    shown = {stamp_ns(path.header.stamp): path for path in driven}
    assert set() < set(shown) <= {tick["t0_ns"] for tick in whole}
    for path in driven:
        assert path.header.frame_id == "odom"
        ahead = [stamp_ns(pose.header.stamp) - stamp_ns(path.header.stamp) for pose in path.poses]
        assert ahead == [100_000_000 * (step + 1) for step in range(64)]
        xs = [pose.pose.position.x for pose in path.poses]
        assert xs == pytest.approx([driver.x(stamp_ns(pose.header.stamp)) for pose in path.poses], abs=1e-3)


def test_a_place_that_is_taken_is_refused(tmp_path, rig, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").touch()
    assert main(["--config", str(rig), "--out", str(tmp_path / "out")]) == 1
    assert "holds no evaluation" in capsys.readouterr().err


def test_nothing_heard_is_said_and_no_success(live, tmp_path, rig, capsys):
    options = build_parser().parse_args(["--config", str(rig), "--out", str(tmp_path / "out"), "--duration", "0.3"])
    assert evaluate(options, threading.Event(), live.context) == 1
    assert "0 paths were scored" in capsys.readouterr().out
