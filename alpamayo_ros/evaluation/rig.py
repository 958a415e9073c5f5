"""A rig's parameter file, as the node reads it, for programs without ROS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from alpamayo_ros.core.settings import Settings, flatten, parameters, parse_settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.parameter_file import load_yaml

NODE = "alpamayo"  # the node's name, in the root namespace
SECTIONS = ("/**", "/*", f"/{NODE}", NODE)  # of a parameter file that apply to that node; later ones win


def load_rig(path: str | Path, changes: Mapping[str, Any] | None = None) -> Settings:
    """The settings in a ROS parameter file.

    Args:
        path: YAML with `ros__parameters` below `/**` or `/alpamayo`.
        changes: parameters by their dotted names, in place of those in the file.

    Raises:
        ConfigurationError: the file or a parameter in it can't be used; names the file and each problem.
    """
    path = Path(path)
    try:
        parsed = load_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"there is no parameter file at {path}; config/ holds one for several rigs") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"the parameter file {path} can't be read: {error}") from error
    try:
        given = _parameters(parsed)
        _check_replaced(given, changes or {})
        return parse_settings({**given, **(changes or {})})
    except (ConfigurationError, ValueError) as error:
        listed = "\n".join(f"  {line}" for line in str(error).splitlines())
        raise ConfigurationError(f"the parameters in {path} can't be used:\n{listed}") from error


def resolve_topic(topic: str) -> str:
    """The full name of a topic in the settings, for the node in the root namespace, without remappings."""
    if topic.startswith("~/"):
        return f"/{NODE}/{topic[2:]}"
    return topic if topic.startswith("/") else f"/{topic}"


def check_odometry_topic(settings: Settings, topic: str | None) -> None:
    """See that a topic of a command line (None: none was given) is one that poses are taken from.

    Raises:
        ConfigurationError: poses come from /tf.
    """
    if topic is not None and settings.odometry.source == "tf":
        raise ConfigurationError(f"--odometry-topic {topic}: with odometry.source tf, poses come from /tf alone")


def parameter_argument(argument: str) -> tuple[str, Any]:
    """Name and value of a command line's NAME:=VALUE, the value in YAML.

    Raises:
        ConfigurationError: it is none.
    """
    name, found, value = argument.partition(":=")
    if not found:
        raise ConfigurationError(f"--parameter {argument}: expected NAME:=VALUE")
    if not value:
        return name, ""
    try:
        return name, load_yaml(value)
    except (ValueError, yaml.YAMLError) as error:
        raise ConfigurationError(f"--parameter {argument}: the value is no YAML: {error}") from error


def _check_replaced(given: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """A value that is replaced must be right all the same: the node would be started with it."""
    known = parameters(())
    for name in known.keys() & given.keys() & changes.keys():
        try:
            known[name].check(given[name])
        except ValueError as error:
            raise ConfigurationError(f"{name} is {given[name]!r}: it {error}") from error


def _parameters(parsed: Any) -> dict[str, Any]:
    sections = parsed if isinstance(parsed, Mapping) else {}
    found = [sections[name] for name in SECTIONS if name in sections]
    if not found or not all(isinstance(each, Mapping) and "ros__parameters" in each for each in found):
        raise ConfigurationError(
            f"expected ros__parameters below one of {', '.join(SECTIONS)}; found "
            f"{', '.join(map(str, sections)) or type(parsed).__name__}"
        )
    flat: dict[str, Any] = {}
    for section in found:
        parameters = section["ros__parameters"] or {}
        if not isinstance(parameters, Mapping):
            raise ConfigurationError(f"ros__parameters is {parameters!r}: it must hold names and values")
        flat.update(flatten(parameters))
    return flat
