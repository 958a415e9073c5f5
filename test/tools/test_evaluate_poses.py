"""`evaluate_bag --pose-source tf` from its command line: the figures of the odometry, for a drive that has none."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drives import JPEG, SECOND, START_NS, circle, rotation

from alpamayo_ros.evaluation.bag import BagWriter
from alpamayo_ros.evaluation.drive_bag import DriveBag
from alpamayo_ros.tools import bag_to_scenario
from alpamayo_ros.tools.evaluate_bag import main


class WithoutOdometry:
    """Stands where DriveBag expects a bag."""

    def __init__(self, bag: BagWriter) -> None:
        self._bag = bag

    def write(self, topic: str, content: Any, stamp_ns: int) -> None:
        if topic != "/odometry":
            self._bag.write(topic, content, stamp_ns)


def drive(path: Path, *, odometry: bool) -> Path:
    """Twelve seconds on a circle, with tf."""
    motion = circle(8.0, 40.0)
    with BagWriter(path) as writer:
        bag = DriveBag(writer if odometry else WithoutOdometry(writer))  # type: ignore[arg-type]
        for number in range(601):
            stamp, (x, y, yaw) = START_NS + number * SECOND // 50, motion(number / 50)
            bag.pose(stamp, np.array([x, y, 0]), rotation(yaw), np.array([8.0, 0, 0]), np.array([0, 0, 0.2]))
            if number % 5 == 0:
                bag.image("front_wide", stamp, JPEG, "jpeg")
    return path


def evaluate(bag: Path, rig: Path, out: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    status = main([str(bag), "--config", str(rig), "--out", str(out), "--pictures", "1", *arguments])
    return status, json.loads((out / "report.json").read_text()) if out.exists() else {}


def test_the_figures_are_those_of_the_odometry(tmp_path: Path, rig: Path) -> None:
    _, theirs = evaluate(drive(tmp_path / "both", odometry=True), rig, tmp_path / "odometry")
    status, ours = evaluate(drive(tmp_path / "tf", odometry=False), rig, tmp_path / "out", "--pose-source", "tf")
    assert status == 0
    assert ours["ticks"] == theirs["ticks"]
    assert ours["ticks"]["ok"] > 15
    assert ours["pose_source"] == "tf from odom to base_link"
    assert theirs["pose_source"] == "odometry on /odometry"
    assert "/tf" in ours["bag"]["topics"]
    for name in ("stop", "constant_velocity"):
        figures = [report["metrics"]["baselines"][name]["ade"]["6.4"]["mean"] for report in (ours, theirs)]
        assert figures[0] == pytest.approx(figures[1], abs=0.05)
        assert figures[0] > 5


def test_a_rig_that_says_so_needs_no_option(tmp_path: Path, rig: Path) -> None:
    bag = drive(tmp_path / "tf", odometry=False)
    _, theirs = evaluate(bag, rig, tmp_path / "option", "--pose-source", "tf")
    status, ours = evaluate(bag, rig, tmp_path / "out", "-p", "odometry.source:=tf")
    assert status == 0
    assert (ours["ticks"], ours["pose_source"]) == (theirs["ticks"], theirs["pose_source"])
    status, _ = evaluate(bag, rig, tmp_path / "map", "-p", "odometry.source:=tf", "-p", "odometry.tf_parent:=map")
    assert status == 1


def test_a_scenario_has_the_poses_of_tf(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    both, alone = (drive(tmp_path / f"{odometry}", odometry=odometry) for odometry in (True, False))

    def positions(bag: Path, *options: str) -> list[list[float]]:
        assert bag_to_scenario.main([str(bag), *options]) == 0
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [event["position"] for event in events if event.get("type") == "odometry"]

    assert positions(alone, "-p", "odometry.source:=tf") == pytest.approx(np.array(positions(both)), abs=1e-9)
    assert bag_to_scenario.main([str(alone)]) == 1
    assert "for poses from /tf, -p odometry.source:=tf" in capsys.readouterr().err
    given = [str(alone), "--odometry-topic", "/odometry", "-p", "odometry.source:=tf"]
    assert bag_to_scenario.main(given) == 1
    assert "--odometry-topic /odometry: with odometry.source tf, poses come from /tf" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pose-source", "tf", "--tf-child", "lidar"], "no moving transforms lead from odom or map to lidar"),
        (["--pose-source", "tf", "--odometry-topic", "/odom"], "--pose-source tf takes none"),
        (["--tf-parent", "map"], "are for --pose-source tf"),
        (["--pose-source", "odometry"], "/odometry (nav_msgs/msg/Odometry, parameter odometry.topic) is missing"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, rig: Path, capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    status, _ = evaluate(drive(tmp_path / "tf", odometry=False), rig, tmp_path / "out", *arguments)
    assert status == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
