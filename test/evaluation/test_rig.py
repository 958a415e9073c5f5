"""Offline programs read the very parameter files that the node reads, and say what is wrong with them."""

from pathlib import Path

import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.rig import load_rig, parameter_argument, resolve_topic

RIGS = sorted((Path(__file__).parents[2] / "config").glob("*.yaml"))
CAMERA = "cameras: {front_wide: {topic: image}}"


def write(folder: Path, text: str) -> Path:
    file = folder / "rig.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("file", RIGS, ids=lambda file: file.stem)
def test_every_rig_of_the_project_can_be_read(file: Path) -> None:
    assert load_rig(file).cameras


@pytest.mark.parametrize("section", ["/**", "/*", "alpamayo", "/alpamayo"])
def test_each_name_under_which_the_node_would_find_its_parameters_counts(tmp_path: Path, section: str) -> None:
    file = write(tmp_path, f"'{section}': {{ros__parameters: {{{CAMERA}, rate_hz: 5}}}}\n")
    assert load_rig(file).timing.rate_hz == 5.0


def test_the_nodes_own_section_wins_over_that_of_all_nodes(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        f"/alpamayo: {{ros__parameters: {{rate_hz: 2}}}}\n/**: {{ros__parameters: {{{CAMERA}, rate_hz: 5}}}}\n"
        "/other: {ros__parameters: {rate_hz: 7}}\n",
    )
    assert load_rig(file).timing.rate_hz == 2.0


def test_changes_win_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, f"/**: {{ros__parameters: {{{CAMERA}, rate_hz: 5}}}}\n")
    assert load_rig(file, {"rate_hz": 1.0, "sampling.num_samples": 3}).timing.rate_hz == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/**: {ros__parameters: {cameras: {front_wide: {topic: image}}, rate_hz: fast}}", "rate_hz is 'fast'"),
        ("/**: {ros__parameters: {cameras: {front_wide: {topic: image}}, rate_hertz: 3}}", "did you mean rate_hz"),
        ("rate_hz: 3", "expected ros__parameters below one of .*; found rate_hz"),
        ("/**: {rate_hz: 3}", "expected ros__parameters"),
        ("", "expected ros__parameters"),
        ("- a", "expected ros__parameters"),
        ("/**: {ros__parameters: }", "cameras is empty"),
        ("/**: {ros__parameters: {cameras: {front_wide: {topic: a}}, rate_hz: " + "9" * 400 + "}}", "rate_hz is 9999"),
        ("a: [", "can't be read"),
        ("/**: {ros__parameters: [1]}", r"ros__parameters is \[1\]: it must hold names and values"),
        ("/**: {ros__parameters: text}", "ros__parameters is 'text'"),
        ("/**: &a {ros__parameters: {x: *a}}", r"\*a is an alias, and ROS reads none"),
        ("/**: {ros__parameters: " + "{a: " * 3000 + "1" + "}" * 3001 + "}", "nested too deeply"),
        (
            "/**: {ros__parameters: {cameras: {front_wide: {topic: a}, front_wide: {topic: b}}}}",
            "front_wide is given twice",
        ),
        ("/**: {ros__parameters: {cameras: {front/wide: {topic: a, index: 1}}}}", "a name has letters, digits"),
        ("/**: {ros__parameters: {cameras: {front.wide: {topic: a}}}}", "without dots in the name"),
        ("\0", "can't be read"),
    ],
)
def test_a_file_that_can_not_be_used_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_rig(file)
    assert str(file) in str(caught.value)


def test_scalars_are_what_ros_makes_of_them(tmp_path: Path) -> None:
    engine, sampling = "engine: {kind: null, checkpoint: 2020-01-01}", "sampling: {reasoning: off}"
    file = write(tmp_path, f"/**: {{ros__parameters: {{{CAMERA}, {engine}, {sampling}, rate_hz: 1e0}}}}\n")
    settings = load_rig(file)
    assert (settings.engine.kind, settings.engine.checkpoint) == ("null", "2020-01-01")
    assert (settings.sampling.reasoning, settings.timing.rate_hz) == ("off", 1.0)


def test_a_wrong_value_is_named_although_a_change_replaces_it(tmp_path: Path) -> None:
    file = write(tmp_path, f"/**: {{ros__parameters: {{{CAMERA}, rate_hz: '5'}}}}\n")
    with pytest.raises(ConfigurationError, match="rate_hz is '5': it must be a number"):
        load_rig(file, {"rate_hz": 1.0})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no parameter file at .*nothing\.yaml"):
        load_rig(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    ("topic", "resolved"),
    [("/a/b", "/a/b"), ("a/b", "/a/b"), ("~/input/odometry", "/alpamayo/input/odometry")],
)
def test_topics_are_those_of_a_node_in_the_root_namespace(topic: str, resolved: str) -> None:
    assert resolve_topic(topic) == resolved


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("rate_hz:=2", ("rate_hz", 2)),
        ("engine.kind:=null", ("engine.kind", "null")),
        ("odometry.child_to_base:=[1, 0, 0, 0, 0, 0]", ("odometry.child_to_base", [1, 0, 0, 0, 0, 0])),
        ("odometry.topic:=~/input/odometry", ("odometry.topic", "~/input/odometry")),
        ("anchor:=", ("anchor", "")),
        ("sampling.temperature:=1e-1", ("sampling.temperature", 0.1)),
    ],
)
def test_a_parameter_of_the_command_line(argument: str, wanted: tuple[str, object]) -> None:
    assert parameter_argument(argument) == wanted


@pytest.mark.parametrize("argument", ["rate_hz", "rate_hz:=[1"])
def test_an_argument_that_is_no_parameter_is_named(argument: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--parameter rate_hz.*: "):
        parameter_argument(argument)
