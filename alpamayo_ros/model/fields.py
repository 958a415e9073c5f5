"""Reads a part of NVIDIA's config.json into a frozen dataclass, and names whatever doesn't fit."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from alpamayo_ros.core.types import ConfigurationError

Config = TypeVar("Config")

logger = logging.getLogger(__name__)

KINDS = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a text"}
HYDRA_KEYS = ("_target_", "_recursive_", "_convert_", "_partial_")


def read_fields(
    cls: type[Config],
    section: Mapping[str, Any],
    name: str,
    required: Collection[str] = (),
    ignored: Collection[str] = (),
    only: Mapping[str, Any] | None = None,
) -> Config:
    """Build `cls` from the keys of `section`, which have the names of its fields.

    The type of a field's default says what its value has to be: bool, int, float, str, or a tuple of numbers of that
    length. A key that isn't known is passed over with a warning, since a newer checkpoint may have more; those that
    hydra itself reads, and those in `ignored`, without one.

    Args:
        cls: A dataclass with a default for every field.
        section: A part of config.json.
        name: What to call that part in an error, for example "action_space_cfg".
        required: Fields whose default must not be taken.
        ignored: Keys that don't matter here.
        only: Keys that would change the computation, and the one value that is supported.

    Raises:
        ConfigurationError: a key that is missing, or a value of another kind than its field or that isn't supported.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    missing = [f"{name}.{key}" for key in required if key not in section]
    if missing:
        raise ConfigurationError(f"config.json has no {', '.join(missing)}")
    values = {}
    for key, value in section.items():
        if only is not None and key in only:
            if value != only[key]:
                raise ConfigurationError(f"{name}.{key} is {value!r}; only {only[key]!r} is supported")
            continue
        if key in HYDRA_KEYS or key in ignored:
            continue
        if key not in defaults:
            logger.warning("%s.%s in config.json is not known here and is passed over", name, key)
            continue
        values[key] = convert(value, defaults[key], f"{name}.{key}")
    return cls(**values)


def convert(value: Any, default: Any, name: str) -> Any:
    """The value as a field with this default has it.

    Raises:
        ConfigurationError: it is of another kind; `name` says what it is.
    """
    if isinstance(default, tuple):
        if not isinstance(value, (list, tuple)) or len(value) != len(default):
            raise ConfigurationError(f"{name} is {value!r}; it has to be a list of {len(default)} numbers")
        return tuple(convert(item, default[0], name) for item in value)
    if isinstance(default, bool) or isinstance(value, bool):
        matches = isinstance(default, bool) and isinstance(value, bool)
    elif isinstance(default, float):
        matches = isinstance(value, (int, float)) and math.isfinite(value)
    else:
        matches = isinstance(value, type(default))
    if not matches:
        raise ConfigurationError(f"{name} is {value!r}; it has to be {KINDS[type(default)]}")
    return float(value) if isinstance(default, float) else value
