"""The layouts for RViz and Foxglove name topics, types and QoS that the node has."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from alpamayo_ros.msg import InferenceStatus, Trajectory

from alpamayo_ros.evaluation.result_bag import DRIVEN
from alpamayo_ros.ros.outputs import TOPICS

CONFIG = Path(__file__).parents[2] / "config"
OUTPUTS = {f"/alpamayo/output/{name}" for name in (*TOPICS, "status", "overlay/compressed")} | {DRIVEN}
CAMERAS = ("cross_left", "front_wide", "cross_right", "front_tele")
IMAGES = {f"/camera/{name}/image/compressed" for name in CAMERAS}
INPUTS = {"/odometry", *IMAGES, "/camera/front_wide/camera_info", "/diagnostics"}
DISPLAYS = {
    "/alpamayo/output/markers": "rviz_default_plugins/MarkerArray",
    "/alpamayo/output/path": "rviz_default_plugins/Path",
    DRIVEN: "rviz_default_plugins/Path",
    "/alpamayo/output/overlay/compressed": "rviz_default_plugins/Image",
    **dict.fromkeys(IMAGES, "rviz_default_plugins/Image"),
    "/odometry": "rviz_default_plugins/Odometry",
}


def test_rviz_shows_each_topic_with_the_display_of_its_type() -> None:
    manager = yaml.safe_load((CONFIG / "alpamayo.rviz").read_text())["Visualization Manager"]
    shown = {each["Topic"]["Value"]: each for each in manager["Displays"] if "Topic" in each}
    assert {topic: display["Class"] for topic, display in shown.items()} == DISPLAYS
    # what is sent best effort is never heard by a reliable subscription
    for topic in ("/alpamayo/output/overlay/compressed", *IMAGES, "/odometry"):
        assert shown[topic]["Topic"]["Reliability Policy"] == "Best Effort"
    assert all(display["Topic"]["Durability Policy"] == "Volatile" for display in shown.values())
    namespaces = shown["/alpamayo/output/markers"]["Namespaces"]
    assert namespaces == dict.fromkeys(("path", "ribbon", "candidates", "reasoning", "skip"), True)
    assert manager["Global Options"]["Fixed Frame"] == "odom"


@pytest.fixture(scope="module")
def foxglove() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CONFIG / "alpamayo.foxglove.json").read_text())
    return found


def leaves(layout: Any) -> Iterator[str]:
    if isinstance(layout, str):
        yield layout
    else:
        assert layout["direction"] in ("row", "column")
        yield from leaves(layout["first"])
        yield from leaves(layout["second"])


def test_foxglove_lays_out_every_panel_once(foxglove: dict[str, Any]) -> None:
    assert sorted(leaves(foxglove["layout"])) == sorted(foxglove["configById"])


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        for each in value.values():
            yield from strings(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


def test_foxglove_asks_for_topics_and_fields_that_exist(foxglove: dict[str, Any]) -> None:
    own = {"/move_base_simple/goal", "/clicked_point", "/initialpose"}  # Foxglove's defaults for publishing
    named = {text for text in strings(foxglove["configById"]) if text.startswith("/")} - own
    topics = {text.split(".")[0] for text in named}
    assert topics <= OUTPUTS | INPUTS
    assert {"/alpamayo/output/markers", "/alpamayo/output/status", "/alpamayo/output/reasoning"} <= topics
    fields = {text.split(".")[1].split("[")[0] for text in named if text.startswith("/alpamayo/") and "." in text}
    known = {*InferenceStatus.get_fields_and_field_types(), *Trajectory.get_fields_and_field_types()}
    assert fields <= known
