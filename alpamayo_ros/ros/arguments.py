"""The node's command line, as far as ROS itself doesn't say what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from alpamayo_ros.core.settings import flatten
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.parameter_file import load_yaml

RULE = re.compile(r"(?:(?P<node>[^:]+):)?(?P<name>[^:]+):=(?P<value>.*)", re.DOTALL)


def given_parameters(argv: Sequence[str], node_name: str) -> dict[str, Any]:
    """The parameters that files and `-p` give to a node; where one is given twice, the last counts.

    ROS says the same, but keeps both values when their types differ, and rclpy takes the one of the type that it looks
    for first: with 10 in a file, `-p rate_hz:=5.5` would leave it 10.

    Args:
        argv: with --ros-args.
        node_name: fully qualified.

    Raises:
        ConfigurationError: a file can't be read.
    """
    found: dict[str, Any] = {}
    for option, value in _ros_options(argv):
        if option == "--params-file":
            found |= _file_parameters(value, node_name)
        elif option in ("-p", "--param"):
            rule = RULE.fullmatch(value)  # ROS has refused what is none
            if rule is not None and rule["node"] in (None, node_name.rsplit("/", 1)[-1]):
                found[rule["name"]] = load_yaml(rule["value"])
    return found


def with_last_values(overrides: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """rclpy's overrides, with the given value in place of one of another type."""
    return {name: given[name] if _other_type(value, given.get(name)) else value for name, value in overrides.items()}


def _other_type(value: Any, given: Any) -> bool:
    """Lists come as tuples and arrays; those are left to rclpy."""
    return isinstance(given, bool | int | float | str) and type(value) is not type(given)


def _ros_options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option between --ros-args and --, with the word behind it."""
    inside = False
    for word, following in zip(argv, [*argv[1:], ""], strict=False):
        inside = word == "--ros-args" or (inside and word != "--")
        if inside and word.startswith("-"):
            yield word, following


def _file_parameters(path: str, node_name: str) -> dict[str, Any]:
    try:
        parsed = load_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"the parameter file {path} can't be read: {error}") from error
    found: dict[str, Any] = {}
    for pattern, parameters in _sections(parsed):
        if pattern.fullmatch(node_name) and isinstance(parameters, Mapping):
            found |= flatten(parameters)
    return found


def _sections(parsed: Any, path: str = "") -> Iterator[tuple[re.Pattern[str], Any]]:
    """Each ros__parameters, with what the names of its nodes look like: * is one part of a name, ** any number."""
    for name, content in parsed.items() if isinstance(parsed, Mapping) else ():
        if name == "ros__parameters":
            parts = [re.escape(part) for part in path.split("/") if part]
            wild = {re.escape("**"): "(/[^/]+)*", re.escape("*"): "/[^/]+"}
            yield re.compile("".join(wild.get(part, f"/{part}") for part in parts)), content
        else:
            yield from _sections(content, f"{path}/{name}")
