"""The settings as ROS parameters: declared with description, range and read-only flag, and checked when they change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter as RosParameter

from alpamayo_ros.core.parameter import Parameter
from alpamayo_ros.core.settings import Settings, parameters, parse_settings
from alpamayo_ros.core.types import ConfigurationError


class NodeParameters:
    """The settings of a node, from its parameter overrides, kept current while they change.

    Args:
        node: gets all parameters declared.
        overrides: given by file or command line, by name.
        check: is asked before a change, and raises ConfigurationError for settings that can't be.
        changed: is called with the new settings after each accepted change.

    Raises:
        ConfigurationError: for everything that is wrong with the overrides.
    """

    def __init__(
        self,
        node: Node,
        overrides: dict[str, Any],
        check: Callable[[Settings], None],
        changed: Callable[[Settings], None],
    ) -> None:
        self.settings = parse_settings(overrides)
        self._check = check
        self._changed = changed
        self._known = parameters(camera.name for camera in self.settings.cameras)
        for name, value in self.settings.flat().items():
            # the override was checked above, and an integer in it would be refused for a number here
            node.declare_parameter(name, value, descriptor(self._known[name]), ignore_override=True)
        node.add_on_set_parameters_callback(self._on_set)

    def _on_set(self, changes: Sequence[RosParameter[Any]]) -> SetParametersResult:
        ours = {each.name: each.value for each in changes if each.name in self._known}
        fixed = [name for name in ours if not self._known[name].dynamic]
        if fixed:
            reason = f"{', '.join(fixed)} can't change while the node runs: start it again with the new value"
            return SetParametersResult(successful=False, reason=reason)
        if not ours:
            return SetParametersResult(successful=True)
        try:
            settings = self.settings.with_values(ours)
            self._check(settings)
        except ConfigurationError as error:
            return SetParametersResult(successful=False, reason=str(error))
        self.settings = settings
        self._changed(self.settings)
        return SetParametersResult(successful=True)


def descriptor(parameter: Parameter) -> ParameterDescriptor:
    """What `ros2 param describe` shows."""
    described = ParameterDescriptor(
        description=parameter.description,
        read_only=not parameter.dynamic,
        additional_constraints=f"must be {parameter.allowed}",
        # else ROS refuses an integer for a number, and any wrong type with a message that names no parameter
        dynamic_typing=parameter.dynamic,
    )
    if parameter.low is not None and parameter.high is not None:
        if isinstance(parameter.default, int):
            described.integer_range = [
                IntegerRange(from_value=int(parameter.low), to_value=int(parameter.high), step=1)
            ]
        elif isinstance(parameter.default, float):
            described.floating_point_range = [
                FloatingPointRange(from_value=float(parameter.low), to_value=float(parameter.high))
            ]
    return described
