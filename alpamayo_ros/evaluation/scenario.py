"""Scenarios: what an observation builder is given, in order of arrival, as lines of JSON.

The first line is the configuration (see `scenario_config`), the others are events. Times are in seconds, and exact to
the nanosecond as they are written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.types import ConfigurationError, EgoPose
from alpamayo_ros.evaluation.scenario_config import parse_config

MAX_SECONDS = 9_000_000_000  # what 64 bits of nanoseconds hold
MAX_PIXELS = 2**31 - 1
MISSING = object()


@dataclass(frozen=True)
class FrameEvent:
    """A camera's image arrives."""

    at_ns: int
    camera: str
    stamp_ns: int
    height: int = 0  # pixels; 0 when not given
    width: int = 0


@dataclass(frozen=True, eq=False)
class OdometryEvent:
    """A pose arrives."""

    at_ns: int
    pose: EgoPose
    frame_id: str = "odom"
    child_frame_id: str = "base_link"


@dataclass(frozen=True)
class ClockEvent:
    """A message on /clock arrives."""

    at_ns: int
    now_ns: int


@dataclass(frozen=True)
class TickEvent:
    """The builder is asked for an observation."""

    at_ns: int


Event = FrameEvent | OdometryEvent | ClockEvent | TickEvent


@dataclass(frozen=True, eq=False)
class Scenario:
    """A configuration, and events in order of arrival."""

    config: BuilderConfig
    events: tuple[Event, ...]
    warnings: tuple[str, ...] = ()  # fields that mean nothing


def parse_scenario(lines: Iterable[bytes]) -> Scenario:
    """A scenario from the lines of a file. Empty lines are left out.

    Raises:
        ConfigurationError: with the line's number, the field, its value and what is right.
    """
    config: BuilderConfig | None = None
    events: list[Event] = []
    ignored: dict[tuple[str, str], str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = _parse_line(line)
            kind = fields.pop("type", MISSING)
            if config is None:
                config = _first_line(kind, fields)
                continue
            reader = _Fields(str(kind), fields)
            events.append(_parse_event(kind, reader, config))
            for name in fields:
                text = f"line {number}: {name} means nothing in an event of type {kind}; it is ignored"
                ignored.setdefault((str(kind), name), text)
        except ConfigurationError as error:
            raise ConfigurationError(f"line {number}: {error}") from None
    if config is None:
        raise ConfigurationError("line 1: the scenario is empty: its first line must be the configuration")
    return Scenario(config, tuple(events), tuple(ignored.values()))


def _first_line(kind: Any, fields: Mapping[str, Any]) -> BuilderConfig:
    if kind != "config":
        found = "missing" if kind is MISSING else repr(kind)
        raise ConfigurationError(f"type is {found}: the first line must be the configuration, of type 'config'")
    return parse_config(_in_floats(fields))


def _parse_event(kind: Any, fields: _Fields, config: BuilderConfig) -> Event:
    if kind is MISSING or not isinstance(kind, str) or kind not in _EVENTS:
        found = "missing" if kind is MISSING else _shown(kind)
        raise ConfigurationError(f"type is {found}: after the first line it must be one of {', '.join(_EVENTS)}")
    return _EVENTS[kind](fields, config)


def _frame(fields: _Fields, config: BuilderConfig) -> Event:
    at_ns, camera, stamp_ns = fields.time("at"), fields.text("camera"), fields.time("stamp")
    names = [each.name for each in config.cameras]
    if camera not in names:
        raise ConfigurationError(f"camera is {camera!r}: it must be one of {', '.join(names)}")
    return FrameEvent(at_ns, camera, stamp_ns, fields.pixels("height"), fields.pixels("width"))


def _odometry(fields: _Fields, config: BuilderConfig) -> Event:
    at_ns, stamp_ns = fields.time("at"), fields.time("stamp")
    position, orientation = fields.numbers("position", 3), fields.numbers("orientation", 4)
    twist = fields.numbers("twist", 6) if fields.has("twist") else None
    linear, angular = (None, None) if twist is None else (twist[:3], twist[3:])
    pose = EgoPose(stamp_ns, position, orientation, linear, angular)
    return OdometryEvent(at_ns, pose, fields.text("frame_id", "odom"), fields.text("child_frame_id", "base_link"))


def _clock(fields: _Fields, config: BuilderConfig) -> Event:
    return ClockEvent(fields.time("at"), fields.time("now"))


def _tick(fields: _Fields, config: BuilderConfig) -> Event:
    return TickEvent(fields.time("at"))


_EVENTS = {"frame": _frame, "odometry": _odometry, "clock": _clock, "tick": _tick}


class _Fields:
    """Takes the fields of one event out of it, one by one."""

    def __init__(self, kind: str, fields: dict[str, Any]) -> None:
        self._kind = kind
        self._fields = fields

    def has(self, name: str) -> bool:
        """Whether a field that may be absent is there; null is absent."""
        if self._fields.get(name, MISSING) is None:
            del self._fields[name]
        return name in self._fields

    def time(self, name: str) -> int:
        """Seconds, as ns."""
        value = self._take(name, "a time in seconds")
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise self._wrong(name, value, "a time in seconds")
        if not -MAX_SECONDS <= value <= MAX_SECONDS:
            raise self._wrong(name, value, f"a time in seconds, from -{MAX_SECONDS} to {MAX_SECONDS}")
        return round(value * 1_000_000_000)

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        if default is not None and not self.has(name):
            return default
        value = self._take(name, "a text")
        if not isinstance(value, str):
            raise self._wrong(name, value, "a text")
        return value

    def numbers(self, name: str, length: int) -> np.ndarray:
        """A list of numbers; NaN and infinity are some, as an odometry may send them."""
        what = f"a list of {length} numbers"
        value = self._take(name, what)
        is_list = isinstance(value, list) and len(value) == length
        if not (is_list and all(isinstance(n, int | float | Decimal) and not isinstance(n, bool) for n in value)):
            raise self._wrong(name, value, what)
        try:
            return np.array([float(number) for number in value])
        except OverflowError:
            raise self._wrong(name, value, f"{what} of at most 1e308") from None

    def pixels(self, name: str) -> int:
        """A number of pixels that may be absent; 0 then."""
        if not self.has(name):
            return 0
        value = self._take(name, "")
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_PIXELS:
            raise self._wrong(name, value, f"a whole number of pixels from 0 to {MAX_PIXELS}")
        return value

    def _take(self, name: str, what: str) -> Any:
        try:
            return self._fields.pop(name)
        except KeyError:
            raise ConfigurationError(f"{name} is missing: an event of type {self._kind} needs it, {what}") from None

    def _wrong(self, name: str, value: Any, right: str) -> ConfigurationError:
        return ConfigurationError(f"{name} is {_shown(value)}: it must be {right}")


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        # decimals, since a float holds a Unix time to a quarter of a microsecond only
        fields = json.loads(line.decode(), parse_float=Decimal, object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"it is no UTF-8: {error}") from None
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"it is no JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, ArithmeticError, RecursionError) as error:  # endless numbers, exponents or nesting
        raise ConfigurationError(f"it can't be read as JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ConfigurationError(f"it is {_shown(fields)}: it must be an object with a type")
    return fields


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(f"{twice} is given twice: give it once")
    return fields


def _in_floats(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {name: _in_floats(each) for name, each in value.items()}
    return [_in_floats(each) for each in value] if isinstance(value, list) else value


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool | float):
        return json.dumps(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
    text = repr(_in_floats(value))
    return text if len(text) <= 200 else f"{text[:200]}..."
