"""A scenario's first line: the observation builder's configuration."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from alpamayo_ros.core.builder_config import MAX_CAMERA_INDEX, BuilderConfig, CameraConfig
from alpamayo_ros.core.parameter import flatten
from alpamayo_ros.core.parameter_groups import CAMERA_INDICES
from alpamayo_ros.core.settings import ROS_PARAMETERS, parameters
from alpamayo_ros.core.types import ConfigurationError

# the node's name of a builder parameter, where it has another one
NODE_NAMES = {"odometry.time_offset": "odometry_time_offset", "odometry.child_to_base": "child_to_base"}
BUILDER_FIELDS = {field.name: field for field in fields(BuilderConfig) if field.name not in ("cameras", "anchor")}
CAMERA_FIELDS = ("index", "required", "time_offset")


def parse_config(given: Mapping[str, Any]) -> BuilderConfig:
    """The configuration in an object of names and values.

    Names are those of BuilderConfig and CameraConfig or of the node's parameters, nested or dotted. A parameter of the
    node that means nothing to the builder, such as a camera's topic, is checked and changes nothing. A camera is
    required unless it says otherwise; one without an index has that of the model's camera of its name, or else the
    lowest that is free. Without an anchor, front_wide leads, or else the required camera of the lowest index.

    Raises:
        ConfigurationError: names the field, its value and what is right.
    """
    nested = {name: value for name, value in given.items() if name != "cameras"}
    flat = flatten(nested)
    cameras = _camera_options(given.get("cameras", {}))
    for name in [name for name in flat if name.startswith("cameras.") and name.count(".") >= 2]:
        camera, _, option = name[len("cameras.") :].rpartition(".")
        cameras.setdefault(camera, {})[option] = flat.pop(name)
    configs = _cameras(cameras)
    anchor = flat.pop("anchor", "") or _default_anchor(configs)
    values: dict[str, Any] = {}
    known = parameters(())
    for name, value in flat.items():
        field = NODE_NAMES.get(name, name)
        if field in values:
            raise ConfigurationError(f"{name} is given twice, also as {field}: give it once")
        if field in BUILDER_FIELDS:
            values[field] = _typed(name, value, BUILDER_FIELDS[field].default)
        elif name in known:
            _check(name, value, known)
        elif name.split(".")[0] not in ROS_PARAMETERS:
            raise _unknown(name, [*known, *BUILDER_FIELDS, "cameras"])
    return BuilderConfig(cameras=configs, anchor=anchor, **values)


def _camera_options(given: Any) -> dict[str, dict[str, Any]]:
    example = '{"front_wide": {"index": 1, "required": true}}'
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"cameras is {given!r}: it must be an object of cameras by name, such as {example}")
    for name, options in given.items():
        if not isinstance(options, Mapping):
            raise ConfigurationError(f"cameras.{name} is {options!r}: it must be an object, such as in {example}")
    return {name: dict(options) for name, options in given.items()}


def _cameras(given: Mapping[str, Mapping[str, Any]]) -> tuple[CameraConfig, ...]:
    if "odometry" in given:
        raise ConfigurationError("cameras.odometry: no camera can be called odometry, which is an input of its own")
    for name, options in given.items():
        known = parameters([name])
        for option, value in options.items():
            full = f"cameras.{name}.{option}"
            if full not in known:
                raise _unknown(full, [each for each in known if each.startswith(f"cameras.{name}.")])
            if option not in ("index", "time_offset"):  # CameraConfig and BuilderConfig know what these may be
                _check(full, value, known)
            if option == "index" and type(value) is not int:
                raise ConfigurationError(f"{full} is {value!r}: it must be a whole number from 0 to {MAX_CAMERA_INDEX}")
    indices = {name: options.get("index", CAMERA_INDICES.get(name)) for name, options in given.items()}
    free = [index for index in range(MAX_CAMERA_INDEX + 1) if index not in indices.values()]
    without = [name for name, index in indices.items() if index is None]
    if len(without) > len(free):
        raise ConfigurationError(
            f"cameras has {len(given)} entries: the model takes at most {MAX_CAMERA_INDEX + 1}, each with its own index"
        )
    indices.update(zip(without, free, strict=False))
    return tuple(
        CameraConfig(name, indices[name], **{o: v for o, v in options.items() if o in CAMERA_FIELDS and o != "index"})
        for name, options in given.items()
    )


def _default_anchor(cameras: tuple[CameraConfig, ...]) -> str:
    required = [camera.name for camera in sorted(cameras, key=lambda camera: camera.index) if camera.required]
    return "front_wide" if "front_wide" in required else next(iter(required), "")


def _typed(name: str, value: Any, default: Any) -> Any:
    """What BuilderConfig takes without looking at its type; numbers it checks itself."""
    if isinstance(default, bool) and not isinstance(value, bool):
        raise ConfigurationError(f"{name} is {value!r}: it must be true or false")
    if isinstance(default, tuple):
        if not isinstance(value, list):
            raise ConfigurationError(f"{name} is {value!r}: it must be a list of {len(default)} numbers")
        return tuple(value)
    return value


def _check(name: str, value: Any, known: Mapping[str, Any]) -> None:
    try:
        known[name].check(value)
    except ValueError as error:
        raise ConfigurationError(f"{name} is {value!r}: it {error}") from None


def _unknown(name: str, known: list[str]) -> ConfigurationError:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else f": expected one of cameras, anchor, {', '.join(BUILDER_FIELDS)}"
    return ConfigurationError(f"{name} is no parameter of the builder or the node{hint}")
