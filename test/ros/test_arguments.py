"""What the command line gives, although ROS loses it."""

from pathlib import Path

import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.ros.arguments import given_parameters, with_last_values

NODE = "/vehicle/alpamayo"


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_the_last_value_of_a_name_counts_whatever_its_type(tmp_path: Path) -> None:
    rig = file(tmp_path, "rig.yaml", "/**: {ros__parameters: {rate_hz: 10, engine: {kind: vllm}, seed: 1}}")
    more = file(tmp_path, "more.yaml", "/**: {ros__parameters: {rate_hz: 5.5, seed: true}}")
    argv = [
        "node",
        "--ros-args",
        "--params-file",
        rig,
        "--params-file",
        more,
        "-p",
        "seed:=7",
        "-p",
        "engine.kind:=null",
    ]
    assert given_parameters(argv, NODE) == {"rate_hz": 5.5, "engine.kind": "null", "seed": 7}


@pytest.mark.parametrize(
    ("section", "applies"),
    [
        ("/**", True),
        ("/*/alpamayo", True),
        ("/**/alpamayo", True),
        ("/vehicle/alpamayo", True),
        ("vehicle/alpamayo", True),
        ("/vehicle/*", True),
        ("/*", False),
        ("alpamayo", False),
        ("/vehicle/other", False),
        ("/vehicle", False),
    ],
)
def test_sections_apply_as_ros_has_it(tmp_path: Path, section: str, applies: bool) -> None:
    rig = file(tmp_path, "rig.yaml", f"'{section}': {{ros__parameters: {{rate_hz: 2}}}}")
    assert given_parameters(["node", "--ros-args", "--params-file", rig], NODE) == ({"rate_hz": 2} if applies else {})


def test_only_arguments_of_ros_and_of_this_node_count(tmp_path: Path) -> None:
    argv = ["node", "-p", "a:=1", "--ros-args", "-p", "other:b:=2", "-p", "alpamayo:c:=3", "--", "-p", "d:=4"]
    assert given_parameters(argv, NODE) == {"c": 3}


def test_a_camera_that_was_copied_and_not_renamed_is_an_error_and_not_a_camera_less(tmp_path: Path) -> None:
    cameras = "cameras: {front_wide: {topic: a}, front_wide: {topic: b}}"
    rig = file(tmp_path, "rig.yaml", f"/**: {{ros__parameters: {{{cameras}}}}}")
    with pytest.raises(ConfigurationError, match=r"rig\.yaml can't be read: (?s:.*)front_wide is given twice"):
        given_parameters(["node", "--ros-args", "--params-file", rig], NODE)


def test_only_values_of_another_type_are_replaced() -> None:
    overrides = {"a": 10, "b": 2.0, "c": (1.0, 2.0), "d": "from elsewhere"}
    assert with_last_values(overrides, {"a": 5.5, "b": 3.0, "c": [1, 2]}) == {**overrides, "a": 5.5}
