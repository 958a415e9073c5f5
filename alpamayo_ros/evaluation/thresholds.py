"""Figures of a report by short names, and limits that they must not exceed: what a nightly run fails by."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.scores import SAMPLE_COUNTS, STEPS
from alpamayo_ros.evaluation.summary import look_up

Report = Mapping[str, Any]

TOO_BAD = 3  # a program's status when a limit is broken

PATHS: dict[str, tuple[str, ...]] = {  # into a report, to the figure itself
    **{f"minADE{k}": ("metrics", "min_ade", str(k), "mean") for k in SAMPLE_COUNTS},
    **{f"ADE@{horizon}": ("metrics", "chosen", "ade", horizon, "mean") for horizon in STEPS},
    **{f"FDE@{horizon}": ("metrics", "chosen", "fde", horizon, "mean") for horizon in STEPS},
    **{f"miss@{horizon}": ("metrics", "chosen", "miss", horizon, "rate") for horizon in STEPS},
    **{f"missWaymo@{h}": ("metrics", "chosen", "miss_waymo", h, "rate") for h in STEPS if float(h) >= 3},
    "latency": ("timings_ms", "engine_total", "median"),
    "latencyP99": ("timings_ms", "engine_total", "p99"),
    "age": ("timings_ms", "age_at_publication", "median"),  # of a live node alone
    "ageP99": ("timings_ms", "age_at_publication", "p99"),
}
SKIPPED = "skipped"  # the share of ticks
NAMES = (*PATHS, SKIPPED)


@dataclass(frozen=True)
class Limit:
    """A figure must be known, and not above a value."""

    name: str
    value: float

    def broken_by(self, report: Report) -> str | None:
        """What is wrong, in words; None when it is kept."""
        found = figure(report, self.name)
        if found is None:
            return f"{self.name} is not known, and has to be at most {self.value:g}"
        return f"{self.name} is {found:.4g}, above {self.value:g}" if found > self.value else None


def figure(report: Report, name: str) -> float | None:
    """One of NAMES; errors in m, shares from 0 to 1, latencies in ms. None where the report doesn't know it."""
    if name == SKIPPED:
        total = report["ticks"]["total"]
        return report["ticks"]["skipped"] / total if total else None
    try:
        value = look_up(report, PATHS[name])
    except KeyError:  # nothing was scored, or nothing ran
        return None
    return None if value is None else float(value)


def parse_limit(text: str) -> Limit:
    """NAME=VALUE.

    Raises:
        ConfigurationError: another form, an unknown name, no number.
    """
    match = re.fullmatch(r"\s*([^=\s]+)\s*=\s*(\S+)\s*", text)
    if match is None or match[1] not in NAMES:
        raise ConfigurationError(f"--fail-above {text!r}: expected NAME=VALUE, NAME one of {', '.join(NAMES)}")
    try:
        return Limit(match[1], float(match[2]))
    except ValueError:
        raise ConfigurationError(f"--fail-above {text!r}: {match[2]!r} is no number") from None


def broken(report: Report, limits: Sequence[Limit]) -> list[str]:
    """What is wrong, for each limit that is not kept."""
    return [text for text in (limit.broken_by(report) for limit in limits) if text is not None]
