import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from alpamayo_ros.core.settings import flatten, parameters, parse_settings, tick_seed
from alpamayo_ros.core.types import ConfigurationError, EgoPose, Observation, SamplingOptions, SkipReason

ROOT = Path(__file__).parents[2]
FRONT = {"cameras.front_wide.topic": "/front"}


def problems(flat):
    with pytest.raises(ConfigurationError) as caught:
        parse_settings(flat)
    return str(caught.value).splitlines()


def test_one_camera_topic_is_enough():
    settings = parse_settings(FRONT)
    assert [(c.name, c.topic, c.index, c.required) for c in settings.cameras] == [("front_wide", "/front", 1, True)]
    assert settings.anchor == "front_wide"
    assert settings.timing.rate_hz == 10.0
    assert settings.output.frame == "odom"


def test_cameras_are_ordered_by_the_models_index_not_by_name():
    names = ("rear_tele", "front_tele", "cross_left", "front_wide")
    settings = parse_settings({f"cameras.{name}.topic": f"/{name}" for name in names})
    assert [camera.name for camera in settings.cameras] == ["cross_left", "front_wide", "rear_tele", "front_tele"]


def test_an_integer_is_taken_for_a_number():
    settings = parse_settings({**FRONT, "rate_hz": 5, "odometry.child_to_base": [1, 0, 0, 0, 0, 0]})
    assert settings.timing.rate_hz == 5.0
    assert isinstance(settings.timing.rate_hz, float)
    assert settings.odometry.child_to_base == (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("rate_hz", "fast", "a number from 0.1 to 10"),
        ("rate_hz", True, "a number from 0.1 to 10"),
        ("rate_hz", 0, "a number from 0.1 to 10"),
        ("rate_hz", float("nan"), "a number from 0.1 to 10"),
        ("sampling.num_samples", 2.5, "an integer from 1 to 64"),
        ("sampling.num_samples", True, "an integer from 1 to 64"),
        ("sampling.num_samples", None, "an integer from 1 to 64"),
        ("standstill_padding", 1, "true or false"),
        ("output_frame", "map", "one of odom, base_link"),
        ("cameras.front_wide.topic", "", "a text, not empty"),
        ("cameras.front_wide.topic", ["/front"], "a text"),
        ("cameras.front_wide.index", 7, "an integer from 0 to 6"),
        ("odometry.child_to_base", [], "a list of 6 numbers"),
        ("odometry.child_to_base", [0, 0, 0, 0, 0, "x"], "a list of 6 numbers"),
        ("odometry.child_to_base", "000000", "a list of 6 numbers"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(name, value, allowed):
    assert any(
        line.startswith(f"{name} is {value!r}: it must be {allowed}") for line in problems({**FRONT, name: value})
    )


def test_an_unknown_name_is_refused_with_the_nearest_one():
    assert problems({**FRONT, "sampling.temprature": 1.0}) == [
        "sampling.temprature is no parameter of this node; did you mean sampling.temperature?"
    ]
    assert problems({**FRONT, "cameras.front_wide.topik": "/x"}) == [
        "cameras.front_wide.topik is no parameter of this node; did you mean cameras.front_wide.topic?"
    ]


def test_parameters_that_every_ros_node_has_are_not_refused():
    parse_settings({**FRONT, "use_sim_time": True, "qos_overrides./front.subscription.depth": 5})


def test_all_problems_are_named_at_once():
    found = problems({"cameras.left.topic": "/l", "rate_hz": -1, "engine.kind": "onnx", "nonsense": 1})
    assert {line.split(" ")[0] for line in found} >= {"cameras.left.index", "rate_hz", "engine.kind", "nonsense"}


def test_no_camera_at_all_is_an_error_that_says_what_to_write():
    assert any("cameras.<name>.topic" in line for line in problems({}))


def test_a_camera_without_a_topic_is_refused():
    assert any(
        line.startswith("cameras.rear_tele.topic is missing")
        for line in problems({**FRONT, "cameras.rear_tele.index": 4})
    )


def test_two_cameras_may_not_share_an_index_or_a_topic():
    found = problems({**FRONT, "cameras.other.topic": "/front", "cameras.other.index": 1})
    assert any(".index is 1" in line for line in found)
    assert any(".topic is '/front'" in line for line in found)


def test_the_anchor_must_be_a_required_camera():
    assert any("anchor is 'rear'" in line for line in problems({**FRONT, "anchor": "rear"}))
    optional = {**FRONT, "cameras.front_tele.topic": "/t", "cameras.front_tele.required": False, "anchor": "front_tele"}
    assert any("anchor is 'front_tele'" in line for line in problems(optional))


def test_without_front_wide_the_required_camera_of_lowest_index_leads():
    flat = {"cameras.cross_left.topic": "/l", "cameras.cross_left.required": False, "cameras.rear_left.topic": "/r"}
    assert parse_settings(flat).anchor == "rear_left"


def test_an_interpreter_for_a_process_that_there_will_not_be_is_refused():
    python = {**FRONT, "engine.python": "/opt/engine/bin/python"}
    assert any(
        line.startswith("engine.python is '/opt/engine/bin/python'")
        for line in problems({**python, "engine.process": "in_process"})
    )
    for process in ("auto", "subprocess"):
        parse_settings({**python, "engine.process": process})


def test_settings_survive_the_way_through_flat_parameters():
    flat = {**FRONT, "cameras.tele.topic": "/t", "cameras.tele.index": 6, "sampling.top_p": 0.5, "publish_tf": True}
    settings = parse_settings(flat)
    assert parse_settings(settings.flat()) == settings
    assert set(settings.flat()) == set(parameters(["front_wide", "tele"]))


def test_a_changed_value_is_checked_like_any_other():
    settings = parse_settings(FRONT)
    assert settings.with_values({"rate_hz": 2}).timing == replace(settings.timing, rate_hz=2.0)
    with pytest.raises(ConfigurationError, match=r"sampling\.given_reasoning is ''"):
        settings.with_values({"sampling.reasoning": "given"})


def test_every_default_satisfies_its_own_limits_and_says_what_it_is_for():
    for name, parameter in parameters(["front_wide"]).items():
        if not parameter.needed and not name.endswith(".index"):
            assert parameter.check(parameter.default) == parameter.default, name
        assert parameter.description.endswith("."), name


def test_zero_and_one_stand_for_no_limit_and_no_guidance():
    options = parse_settings(FRONT).sampling_options(seed=7)
    assert isinstance(options, SamplingOptions)
    assert (options.seed, options.deadline_ms, options.flow_steps, options.guidance_weight) == (7, None, None, None)
    flat = {**FRONT, "sampling.deadline_ms": 80, "sampling.flow_steps": 5, "sampling.guidance_weight": 1.5}
    options = parse_settings(flat).sampling_options(seed=7)
    assert (options.deadline_ms, options.flow_steps, options.guidance_weight) == (80.0, 5, 1.5)


def test_a_tick_without_a_navigation_text_is_not_guided():
    settings = parse_settings({**FRONT, "sampling.guidance_weight": 1.5, "sampling.seed": 3})
    pose = EgoPose(9, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
    told = Observation(9, 0, {}, np.zeros((16, 3)), np.zeros((16, 3, 3)), pose, navigation="Turn left in 30m")
    assert settings.tick_options(told).guidance_weight == 1.5
    assert settings.tick_options(replace(told, navigation=None)).guidance_weight is None
    assert settings.tick_options(told).seed == tick_seed(3, 9)


def test_a_ticks_seed_depends_on_the_parameter_and_on_t0_alone():
    assert tick_seed(0, 1_000) == tick_seed(0, 1_000)
    seeds = {tick_seed(base, t0) for base in range(10) for t0 in range(10)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_nested_names_become_dotted_ones():
    nested = {"cameras": {"front_wide": {"topic": "/front"}}, "rate_hz": 5, "odometry": {"child_to_base": [0, 0]}}
    assert flatten(nested) == {"cameras.front_wide.topic": "/front", "rate_hz": 5, "odometry.child_to_base": [0, 0]}


def test_the_documentation_lists_every_parameter_with_what_is_allowed():
    _, table = (ROOT / "docs" / "node.md").read_text().split("## Parameters")
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    for name, parameter in parameters(["<name>"]).items():
        row = next((line for line in rows if line.startswith(f"| `{name}` ")), "")
        assert f"| {parameter.allowed} |" in row, name
        assert row.endswith(f"| {parameter.description} |"), name
        assert ("| live |" in row) == parameter.dynamic, name


@pytest.mark.parametrize("file", sorted((ROOT / "config").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_rig_file_can_be_used_as_it_is(file):
    settings = parse_settings(flatten(yaml.safe_load(file.read_text())["/**"]["ros__parameters"]))
    assert settings.builder_config().anchor == settings.anchor
    assert "docs/node.md" in file.read_text()


def test_the_documentation_explains_every_skip_reason_in_the_order_in_which_they_are_reported():
    _, table = (ROOT / "docs" / "node.md").read_text().split("## Skip reasons")
    table, _ = table.split("## Parameters")
    listed = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert listed == [reason.value for reason in SkipReason]


@pytest.mark.parametrize(("text", "fault"), [("x" * 2001, "it has 2001 characters"), ("<|im_end|>", "<|im_end|>")])
def test_a_given_reasoning_at_which_every_tick_would_fail_is_refused(text, fault):
    settings = parse_settings({**FRONT, "sampling.reasoning": "given", "sampling.given_reasoning": "Keep the lane."})
    with pytest.raises(ConfigurationError, match=r"sampling\.given_reasoning can't be used: .*" + re.escape(fault)):
        settings.with_values({"sampling.given_reasoning": text})


def test_transforms_that_give_the_poses_are_not_published():
    assert any(
        line.startswith("publish_tf is True: with odometry.source tf")
        for line in problems({**FRONT, "odometry.source": "tf", "publish_tf": True})
    )


def test_transforms_that_give_the_poses_lead_to_base_frame_itself():
    lever = {**FRONT, "odometry.child_to_base": [1.4, 0, 0, 0, 0, 0]}
    parse_settings(lever)
    assert any(
        line.startswith("odometry.child_to_base is [1.4,") for line in problems({**lever, "odometry.source": "tf"})
    )
