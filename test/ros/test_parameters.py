"""Parameters of a running node."""

import pytest
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import DescribeParameters
from rclpy.parameter import Parameter

from alpamayo_ros.core.types import ConfigurationError


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


def test_an_override_that_is_wrong_keeps_the_node_from_starting(live):
    with pytest.raises(ConfigurationError, match=r"sampling\.temprature is no parameter of this node; did you mean"):
        live.node(start=False, **{"sampling.temprature": 1.0})


def test_an_integer_in_an_override_is_taken_for_a_number(live):
    node = live.node(start=False, rate_hz=5)
    assert node.get_parameter("rate_hz").value == 5.0
