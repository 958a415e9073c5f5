"""What the launch file starts. It runs where ROS 2's launch is installed, which the wheels of PyPI don't bring."""

import importlib.util
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("launch_ros", reason="ROS 2's launch_ros is not installed: the launch file was not run")

from launch.actions import DeclareLaunchArgument
from launch.utilities import perform_substitutions

from launch import LaunchContext

ROOT = Path(__file__).parents[2]


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, **arguments: str) -> dict[str, list[str]]:
    """The command of each executable that the launch file would start."""
    (folder / "share" / "ament_index" / "resource_index" / "packages").mkdir(parents=True)
    for package in ("alpamayo_ros", "rviz2"):
        (folder / "share" / "ament_index" / "resource_index" / "packages" / package).touch()
    (folder / "share" / "alpamayo_ros").mkdir()
    (folder / "share" / "alpamayo_ros" / "config").symlink_to(ROOT / "config")
    executables = folder / "lib" / "alpamayo_ros"
    executables.mkdir(parents=True)
    for name in ("alpamayo_node", "evaluate_live"):
        (executables / name).symlink_to(ROOT / "scripts" / name)
    (folder / "lib" / "rviz2").mkdir()
    (folder / "lib" / "rviz2" / "rviz2").touch(mode=0o755)
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(folder))
    spec = importlib.util.spec_from_file_location("launch_file", ROOT / "launch" / "alpamayo.launch.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    context = LaunchContext()
    context.launch_configurations.update(arguments)
    nodes: list[Any] = []
    for entity in module.generate_launch_description().entities:
        if entity.condition is not None and not entity.condition.evaluate(context):
            continue
        found = entity.execute(context) or []
        if not isinstance(entity, DeclareLaunchArgument):
            nodes += found
    context.extend_locals({"ros_specific_arguments": defaultdict(str)})  # which a node adds when it is executed
    commands = [[perform_substitutions(context, part) for part in node.cmd] for node in nodes]
    return {Path(command[0]).name: command for command in commands}


def test_a_node_alone_unless_more_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(started(tmp_path, monkeypatch)) == ["alpamayo_node"]


def test_a_tilde_in_a_path_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    given = {"params_file": "~/rig.yaml", "evaluation_out": "~/results", "rviz_config": "~/mine.rviz"}
    commands = started(tmp_path, monkeypatch, evaluate="true", rviz="true", **given)
    assert {"/home/somebody/rig.yaml", "/home/somebody/results"} < set(commands["evaluate_live"])
    assert "/home/somebody/mine.rviz" in commands["rviz2"]


def test_an_evaluation_listens_to_that_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"params_file": "/rig.yaml", "namespace": "car", "odometry": "/odom", "evaluation_out": "/results"}
    commands = started(tmp_path, monkeypatch, evaluate="true", **given)
    assert list(commands) == ["alpamayo_node", "evaluate_live"]
    words = commands["evaluate_live"]
    for option, value in {
        "--config": "/rig.yaml",
        "--out": "/results",
        "--node": "/car/alpamayo",
        "--odometry-topic": "/odom",
    }.items():
        assert words[words.index(option) + 1] == value
