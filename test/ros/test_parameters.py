"""Parameters of a running node."""

import re
import threading
from dataclasses import replace

import pytest
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import DescribeParameters
from rclpy.parameter import Parameter

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.limits import check_limits
from alpamayo_ros.engine.null_engine import INFO, NullEngine

SMALL = replace(INFO, max_samples=8, max_tokens=1024, prompt_tokens=512, cache_tokens=2048)


class SmallEngine(NullEngine):
    """It was built for little, and fails where it is asked for more."""

    def __init__(self, load=lambda: None):
        super().__init__()
        self.info = SMALL
        load()

    def predict(self, observation, options):
        assert options.num_samples <= SMALL.max_samples
        assert options.max_reasoning_tokens <= 510
        return super().predict(observation, options)


def set_one(node, name, value):
    return node.set_parameters([Parameter(name, value=value)])[0]


def test_every_parameter_is_declared_with_a_description_and_the_fixed_ones_are_read_only(live):
    live.node(start=False)
    live.driver(connect=False)
    names = ["rate_hz", "sampling.num_samples", "cameras.front_wide.topic", "odometry.child_to_base"]
    request = DescribeParameters.Request(names=names)
    rate, samples, topic, mounting = live.call(DescribeParameters, "/alpamayo/describe_parameters", request).descriptors
    assert all(descriptor.description.endswith(".") for descriptor in (rate, samples, topic, mounting))
    assert (rate.floating_point_range[0].from_value, rate.floating_point_range[0].to_value) == (0.1, 10.0)
    assert (samples.integer_range[0].from_value, samples.integer_range[0].to_value) == (1, 64)
    assert [descriptor.read_only for descriptor in (rate, samples, topic, mounting)] == [False, False, True, True]
    assert mounting.type == ParameterType.PARAMETER_DOUBLE_ARRAY


def test_sampling_rate_and_selection_change_while_running(live):
    node = live.node()
    driver = live.driver()
    driver.play()
    driver.wait_for("candidates", lambda message: len(message.candidates) == 2)
    assert set_one(node, "sampling.num_samples", 4).successful
    assert set_one(node, "rate_hz", 5).successful  # an integer for a number
    assert set_one(node, "selection", "first").successful
    assert node.settings.timing.rate_hz == 5.0
    driver.play()
    driver.wait_for("candidates", lambda message: len(message.candidates) == 4 and message.chosen == 0)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("rate_hz", "fast", "rate_hz is 'fast': it must be a number from 0.1 to 10"),
        ("selection", "best", "selection is 'best': it must be one of medoid, first, mean"),
        ("sampling.reasoning", "given", "sampling.given_reasoning is ''"),
        ("sampling.num_samples", 0, "sampling.num_samples"),
        ("cameras.front_wide.topic", "/other", "cameras.front_wide.topic"),
    ],
)
def test_a_wrong_change_is_refused_with_the_reason_and_nothing_changes(live, name, value, told):
    node = live.node(start=False)
    before = node.settings
    result = set_one(node, name, value)
    assert not result.successful
    assert told in result.reason
    assert node.settings == before


def test_a_change_beyond_what_the_engine_was_built_for_is_refused_with_the_limit_and_ticks_go_on(live):
    node = live.node(lambda _: SmallEngine())
    driver = live.driver()
    before = node.settings
    for name, value, told in (
        ("sampling.max_reasoning_tokens", 511, "sampling.max_reasoning_tokens is 511: .* the engine has room for 510"),
        ("sampling.num_samples", 9, "sampling.num_samples is 9: the engine takes at most 8"),
    ):
        result = set_one(node, name, value)
        assert not result.successful
        assert re.search(told, result.reason)
    many = {"num_samples": 8, "reasoning": "independent", "max_reasoning_tokens": 300}
    together = [Parameter(f"sampling.{n}", value=v) for n, v in many.items()]
    result = node.set_parameters_atomically(together)  # each of them alone is none too many
    assert not result.successful
    assert "has room for 6 such texts" in result.reason
    assert node.settings == before
    assert set_one(node, "sampling.max_reasoning_tokens", 510).successful
    driver.play()
    driver.wait_for("candidates")


def test_parameters_beyond_what_the_engine_was_built_for_keep_it_from_being_configured(live):
    warmed = []

    class Slow(SmallEngine):
        def warm_up(self):
            warmed.append(True)

    node = live.node(lambda _: Slow(), start=False, **{"sampling.max_reasoning_tokens": 600})
    node.autostart()
    assert node.state == "unconfigured"
    assert not warmed  # which takes minutes
    driver = live.driver(connect=False)
    driver.wait_for_diagnostic("engine", "sampling.max_reasoning_tokens is 600")
    assert set_one(node, "sampling.max_reasoning_tokens", 64).successful
    node.autostart()
    assert node.state == "active"


def test_parameters_that_change_while_the_engine_loads_hold_when_it_is_ready(live):
    loading, changed = threading.Event(), threading.Event()

    def load():
        loading.set()
        assert changed.wait(10)

    node = live.node(lambda _: SmallEngine(load), start=False)
    configuring = threading.Thread(target=node.autostart)
    configuring.start()
    assert loading.wait(10)
    assert set_one(node, "sampling.num_samples", 5).successful
    changed.set()
    configuring.join(10)
    driver = live.driver()
    driver.play()
    driver.wait_for("candidates", lambda message: len(message.candidates) == 5)


def test_a_change_right_after_the_last_check_of_configuring_is_checked_too(live, monkeypatch):
    node = live.node(lambda _: SmallEngine(), start=False)
    results = []

    def check(settings, info):
        check_limits(settings, info)
        if not results:  # of configuring, not of the change below
            results.append(None)
            results[0] = set_one(node, "sampling.num_samples", 9)

    monkeypatch.setattr("alpamayo_ros.ros.node.check_limits", check)
    node.autostart()
    assert node.state == "active"
    assert not results[0].successful
    assert "sampling.num_samples is 9: the engine takes at most 8" in results[0].reason
    assert node.settings.sampling.num_samples <= 8


def test_an_override_that_is_wrong_keeps_the_node_from_starting(live):
    with pytest.raises(ConfigurationError, match=r"sampling\.temprature is no parameter of this node; did you mean"):
        live.node(start=False, **{"sampling.temprature": 1.0})


def test_an_integer_in_an_override_is_taken_for_a_number(live):
    node = live.node(start=False, rate_hz=5)
    assert node.get_parameter("rate_hz").value == 5.0
