"""Every class, property and choice in the layouts is one that RViz and Foxglove have: both ignore what they don't know.

The facts are those of ros2/rviz (`rviz_default_plugins`, `rviz_common`) and of the Foxglove SDK's layouts.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

CONFIG = Path(__file__).parents[2] / "config"

# A property is a type, a tuple of choices, or a mapping of the properties below it; its own value is called Value.
COLOR, ANY = "r; g; b", object
VECTOR = {"X": float, "Y": float, "Z": float}
QOS = {
    "Value": str,
    "Depth": int,
    "History Policy": ("System Default", "Keep Last", "Keep All"),
    "Reliability Policy": ("System Default", "Reliable", "Best Effort"),
    "Durability Policy": ("System Default", "Transient Local", "Volatile"),
}
FILTERED = {**QOS, "Filter size": int}  # displays that wait for transforms
EVERY = {"Class": str, "Name": str, "Enabled": bool, "Value": bool}
DISPLAYS: dict[str, dict[str, Any]] = {
    "Grid": {
        "Cell Size": float,
        "Plane Cell Count": int,
        "Normal Cell Count": int,
        "Color": COLOR,
        "Alpha": float,
        "Plane": ("XY", "XZ", "YZ"),
        "Reference Frame": str,
        "Line Style": {"Value": ("Lines", "Billboards"), "Line Width": float},
        "Offset": VECTOR,
    },
    "TF": {
        "Marker Scale": float,
        "Show Names": bool,
        "Show Axes": bool,
        "Show Arrows": bool,
        "Frame Timeout": float,
        "Update Interval": float,
        "Filter (blacklist)": str,
        "Filter (whitelist)": str,
        "Frames": {"All Enabled": bool},
        "Tree": ANY,
    },
    "Odometry": {
        "Topic": FILTERED,
        "Keep": int,
        "Position Tolerance": float,
        "Angle Tolerance": float,
        "Shape": {
            "Value": ("Arrow", "Axes"),
            **dict.fromkeys(("Axes Length", "Axes Radius", "Head Length", "Head Radius"), float),
            **dict.fromkeys(("Shaft Length", "Shaft Radius", "Alpha"), float),
            "Color": COLOR,
        },
        "Covariance": {"Value": bool},
    },
    "MarkerArray": {"Topic": QOS, "Namespaces": ANY},
    "Path": {
        "Topic": FILTERED,
        "Line Style": ("Lines", "Billboards"),
        "Line Width": float,
        "Color": COLOR,
        "Alpha": float,
        "Buffer Length": int,
        "Pose Style": ("None", "Axes", "Arrows"),
        "Offset": VECTOR,
    },
    "Image": {
        "Topic": QOS,
        "Normalize Range": bool,
        "Min Value": float,
        "Max Value": float,
        "Median window": int,
    },
}
VIEW = {
    "Class": ("rviz_default_plugins/ThirdPersonFollower",),
    "Name": str,
    "Value": str,
    "Target Frame": str,
    "Distance": float,
    "Pitch": float,
    "Yaw": float,
    "Near Clip Distance": float,
    "Invert Z Axis": bool,
    "Focal Point": VECTOR,
    "Focal Shape Fixed Size": bool,
    "Focal Shape Size": float,
    "Enable Stereo Rendering": {
        "Value": bool,
        "Stereo Eye Separation": float,
        "Stereo Focal Distance": float,
        "Swap Stereo Eyes": bool,
    },
}
TOOLS = {"Class": ("MoveCamera", "FocusCamera", "Measure", "Select", "Interact", "PublishPoint"), "Line color": COLOR}
OPTIONS = {"Background Color": COLOR, "Fixed Frame": str, "Frame Rate": int}
PANELS = ("Displays", "Views", "Time", "Selection", "Tool Properties", "Transformation")


def faults(found: Any, known: Any, place: str) -> list[str]:
    """What RViz would ignore."""
    if known is ANY:
        return []
    if known == COLOR:
        parts = str(found).split(";")
        return [] if len(parts) == 3 and all(0 <= int(part) <= 255 for part in parts) else [f"{place}: {found}"]
    if isinstance(known, tuple):
        return [] if found in known else [f"{place}: {found} is none of {known}"]
    if isinstance(known, dict):
        if not isinstance(found, dict):
            return [f"{place}: {found} has no properties"]
        return [
            fault
            for name, value in found.items()
            for fault in (faults(value, known[name], f"{place}/{name}") if name in known else [f"{place}/{name}"])
        ]
    right = isinstance(found, (int, float)) and not isinstance(found, bool) if known is float else type(found) is known
    return [] if right else [f"{place}: {found!r} is no {known.__name__}"]


@pytest.fixture(scope="module")
def rviz() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONFIG / "alpamayo.rviz").read_text())
    return found


def test_rviz_has_every_display_and_property(rviz: dict[str, Any]) -> None:
    displays = rviz["Visualization Manager"]["Displays"]
    assert len({display["Name"] for display in displays}) == len(displays)
    for display in displays:
        package, _, kind = display["Class"].partition("/")
        assert package == "rviz_default_plugins"
        assert faults(display, {**EVERY, **DISPLAYS[kind]}, display["Name"]) == []


def test_rviz_has_every_panel_tool_view_and_option(rviz: dict[str, Any]) -> None:
    assert {panel["Class"] for panel in rviz["Panels"]} <= {f"rviz_common/{name}" for name in PANELS}
    manager = rviz["Visualization Manager"]
    for tool in manager["Tools"]:
        plain = {**tool, "Class": tool["Class"].removeprefix("rviz_default_plugins/")}
        assert faults(plain, TOOLS, tool["Class"]) == []
    assert manager["Transformation"] == {"Current": {"Class": "rviz_default_plugins/TF"}}
    assert faults(manager["Views"]["Current"], VIEW, "view") == []
    assert faults(manager["Global Options"], OPTIONS, "options") == []
    assert set(rviz) == {"Panels", "Visualization Manager", "Window Geometry"}


def test_a_typo_is_a_fault() -> None:
    path = {"Topic": {"Value": "/path", "Reliability Policy": "Best effort"}, "Line width": 0.3, "Color": "1; 2"}
    assert faults(path, DISPLAYS["Path"], "path") == [
        f"path/Topic/Reliability Policy: Best effort is none of {QOS['Reliability Policy']}",
        "path/Line width",
        "path/Color: 1; 2",
    ]


CAMERA = ("perspective", "distance", "phi", "thetaOffset", "targetOffset", "target", "targetOrientation", "fovy")
SCENE = {"cameraState", "followTf", "followMode", "scene", "transforms", "topics", "layers", "publish", "imageMode"}
FOXGLOVE: dict[str, set[str]] = {  # by the type of a panel
    "3D": SCENE,
    "Image": SCENE,
    "RawMessages": {"topicPath", "diffEnabled", "diffMethod", "diffTopicPath", "showFullMessageForDiff", "expansion"},
    "Plot": {
        *("paths", "showXAxisLabels", "showYAxisLabels", "showLegend", "legendDisplay", "showPlotValuesInLegend"),
        *("isSynced", "xAxisVal", "sidebarDimension", "minYValue", "maxYValue", "followingViewWidth"),
    },
    "StateTransitions": {"paths", "isSynced", "showPoints"},
    "DiagnosticSummary": {"minLevel", "pinnedIds", "hardwareIdFilter", "topicToRender", "sortByLevel"},
}
SERIES = {"value", "enabled", "timestampMethod", "label", "color"}
POSES = {"visible", "type", "lineWidth", "gradient", "axisScale", "arrowScale"}
GRID = {
    *("visible", "frameLocked", "label", "instanceId", "layerId"),
    *("size", "divisions", "lineWidth", "color", "position", "rotation"),
}


def test_foxglove_has_every_panel_and_setting() -> None:
    panels = json.loads((CONFIG / "alpamayo.foxglove.json").read_text())["configById"]
    for name, panel in panels.items():
        kind = name.split("!")[0]
        assert set(panel) - {"foxglovePanelTitle"} <= FOXGLOVE[kind], name
        assert panel["foxglovePanelTitle"]
        assert set(panel.get("cameraState", {})) <= {*CAMERA, "near", "far"}
        for series in panel.get("paths", []):
            assert set(series) <= SERIES
            assert series["timestampMethod"] in ("receiveTime", "headerStamp")
        for topic in panel.get("topics", {}).values():
            assert set(topic) <= POSES
            assert topic.get("type", "line") in ("line", "axis", "arrow")
        for layer in panel.get("layers", {}).values():
            assert layer["layerId"] == "foxglove.Grid"
            assert set(layer) <= GRID
        assert set(panel.get("imageMode", {})) <= {"imageTopic", "calibrationTopic", "annotations", "synchronize"}
    assert panels["3D!scene"]["followMode"] in ("follow-pose", "follow-position", "follow-none")
