"""`make closed-loop` on a short route: a node of its own, a report, and what needs no model beside it."""

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs rclpy: make setup, or source a ROS 2 installation")

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.tools.closed_loop import build_parser, run


def drive(*arguments: str) -> int:
    return run(build_parser().parse_args(["--engine", "null", *arguments]), threading.Event())


def test_a_node_drives_a_route_and_is_compared(tmp_path: Path, ros_domain: int, capsys: pytest.CaptureFixture) -> None:
    arguments = ["--routes", "1", "--length", "60", "--first-seed", "1000", "--size", "32", "24"]
    assert drive(*arguments, "--out", str(tmp_path / "out")) == 0
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (route,) = report["routes"]
    assert report["engine"].startswith("null")
    assert report["ticks"]["trajectories"] > 10
    assert report["ticks"]["unanswered"] == 0
    assert route["seed"] == 1000
    assert route["distance_m"] > 30
    assert report["compared"]["expert"]["passed"] == 1
    assert report["compared"]["stop"]["passed"] == 0
    assert "of 1 routes driven to their end" in capsys.readouterr().out


def test_it_fails_when_too_few_routes_are_passed(tmp_path: Path, ros_domain: int) -> None:
    """This one bends left after 50 m, and the null engine doesn't."""
    arguments = ["--routes", "1", "--length", "120", "--first-seed", "1000", "--size", "32", "24"]
    assert drive(*arguments, "--no-comparison", "--require", "1", "--out", str(tmp_path / "out")) == 1


def test_an_impossible_number_of_routes_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--routes 0: expected 1 to 1000"):
        drive("--routes", "0", "--out", str(tmp_path / "out"))
