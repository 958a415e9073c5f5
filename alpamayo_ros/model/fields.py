"""Reads a part of NVIDIA's config.json into a frozen dataclass, and names whatever doesn't fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from alpamayo_ros.core.types import ConfigurationError

Config = TypeVar("Config")

HYDRA_KEYS = ("_target_", "_recursive_", "_convert_", "_partial_")


def read_fields(cls: type[Config], section: Mapping[str, Any], name: str, ignored: Collection[str] = ()) -> Config:
    """Build `cls` from the keys of `section`, which have the names of its fields.

    The type of a field's default says what its value has to be: bool, int, float, str, or a tuple of numbers of that
    length. Keys that hydra itself reads, and those in `ignored`, are passed over.

    Args:
        cls: A dataclass with a default for every field.
        section: A part of config.json.
        name: What to call that part in an error, for example "action_space_cfg".
        ignored: Keys that don't matter here.

    Raises:
        ConfigurationError: a key that `cls` doesn't know, or a value of another kind than its field.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values = {}
    for key, value in section.items():
        if key in HYDRA_KEYS or key in ignored:
            continue
        if key not in defaults:
            raise ConfigurationError(f"{name}.{key} is not known; known keys are {', '.join(sorted(defaults))}")
        values[key] = _convert(value, defaults[key], f"{name}.{key}")
    return cls(**values)


def _convert(value: Any, default: Any, name: str) -> Any:
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)) or len(value) != len(default):
            raise ConfigurationError(f"{name} is {value!r}; it has to be a list of {len(default)} numbers")
        return tuple(_convert(item, default[0], name) for item in value)
    if isinstance(default, bool) or isinstance(value, bool):
        matches = isinstance(default, bool) and isinstance(value, bool)
    elif isinstance(default, float):
        matches = isinstance(value, (int, float)) and math.isfinite(value)
    else:
        matches = isinstance(value, type(default))
    if not matches:
        kind = "finite number" if isinstance(default, float) else type(default).__name__
        raise ConfigurationError(f"{name} is {value!r}; it has to be a {kind}")
    return float(value) if isinstance(default, float) else value
