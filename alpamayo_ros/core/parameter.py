"""One declared parameter: its default, its meaning and what it may be. ROS and the offline tools read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

Value = bool | int | float | str | tuple[float, ...]


@dataclass(frozen=True)
class Parameter:
    """What a parameter is, and which values it takes. Its type is that of its default."""

    default: Value
    description: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    length: int = 0  # of a list
    dynamic: bool = False  # may change while the node runs
    needed: bool = False  # has no default that could work: must be given
    name: str = ""  # the whole parameter name where it isn't <prefix>.<field>

    @property
    def allowed(self) -> str:
        """In words, what a value must be."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        kind = {bool: "true or false", int: "an integer", float: "a number", str: "a text"}.get(type(self.default))
        if kind is None:
            kind = f"a list of {self.length} numbers"
        if self.low is not None and self.high is not None:
            return f"{kind} from {self.low:.10g} to {self.high:.10g}"
        if self.low is not None:
            return f"{kind} of at least {self.low:.10g}"
        return kind

    def check(self, value: Any) -> Value:
        """Return the value in this parameter's type.

        Raises:
            ValueError: it can't be; the message says what is allowed.
        """
        checked = self._typed(value)
        if checked is None:
            raise ValueError(f"must be {self.allowed}")
        if isinstance(checked, str):
            if (self.choices and checked not in self.choices) or (self.needed and not checked):
                raise ValueError(f"must be {self.allowed}" + ("" if self.choices else ", not empty"))
            return checked
        numbers = checked if isinstance(checked, tuple) else (checked,)
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        if not all(low <= number <= high for number in numbers):
            raise ValueError(f"must be {self.allowed}")
        return checked

    def _typed(self, value: Any) -> Value | None:
        if isinstance(self.default, tuple):
            return self._numbers(value)
        if isinstance(self.default, float):
            return _number(value)
        if value is False and "off" in self.choices:
            return "off"  # in YAML an off without quotes is false
        # bool is an int in Python; true is no number here
        return value if type(value) is type(self.default) else None

    def _numbers(self, value: Any) -> tuple[float, ...] | None:
        if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != self.length:
            return None
        numbers = [_number(item) for item in value]
        return None if None in numbers else tuple(n for n in numbers if n is not None)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def declare(default: Value, description: str, **limits: Any) -> Any:
    """A dataclass field that is a parameter; `limits` are Parameter's other fields."""
    return field(default=default, metadata={"parameter": Parameter(default, description, **limits)})


def declared(group: type, prefix: str) -> Mapping[str, tuple[str, Parameter]]:
    """The parameters of a dataclass: parameter name -> (field name, parameter)."""
    found = {}
    for each in fields(group):
        parameter = each.metadata.get("parameter")
        if parameter is not None:
            name = parameter.name or (f"{prefix}.{each.name}" if prefix else each.name)
            found[name] = (each.name, parameter)
    return found


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested names to ROS's dotted ones: {"a": {"b": 1}} -> {"a.b": 1}."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        dotted = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(value, Mapping):
            flat.update(flatten(value, dotted))
        else:
            flat[dotted] = value
    return flat
