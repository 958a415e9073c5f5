"""Two evaluations beside each other: what was run differently, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bootstrap import mean_interval
from alpamayo_ros.evaluation.output_folder import FORMAT, REPORT, TICKS
from alpamayo_ros.evaluation.summary import look_up
from alpamayo_ros.evaluation.thresholds import NAMES, PATHS, figure


@dataclass(frozen=True)
class Evaluation:
    """What one left behind."""

    path: Path
    report: Mapping[str, Any]
    ticks: Mapping[int, Mapping[str, Any]]  # by t0, those that have figures


@dataclass(frozen=True)
class Change:
    """One figure in both."""

    name: str
    before: float | None
    after: float | None
    paired: Mapping[str, Any] | None  # over the ticks of both, after less before; see bootstrap.py


def load_evaluation(path: Path) -> Evaluation:
    """Read a folder that evaluate_bag wrote.

    Raises:
        ConfigurationError: it is none, or one of another version.
    """
    try:
        report = json.loads((path / REPORT).read_text(encoding="utf-8"))
        lines = (path / TICKS).read_text(encoding="utf-8").splitlines()
        ticks = [json.loads(line) for line in lines]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} holds no evaluation: {error}") from error
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise ConfigurationError(f"{path / REPORT} is not of {FORMAT!r}: evaluate again with this version")
    scored = {tick["t0_ns"]: tick["metrics"] for tick in ticks if tick["metrics"] is not None}
    return Evaluation(path, report, scored)


def changes(before: Evaluation, after: Evaluation) -> list[Change]:
    """Every figure that one of them knows; paired over the ticks with the same t0."""
    found = []
    for name in NAMES:
        values = figure(before.report, name), figure(after.report, name)
        if values != (None, None):
            found.append(Change(name, *values, _paired(name, before, after)))
    return found


def differences(before: Evaluation, after: Evaluation) -> dict[str, tuple[Any, Any]]:
    """What was run differently: parameters, engine, versions and recording, by name; None where one has none."""
    found = {}
    live = "live" in before.report or "live" in after.report  # a running node tells less of itself
    for group in ("settings", "engine", "versions"):
        old, new = before.report[group], after.report[group]
        for key in dict.fromkeys([*old, *new]):
            if live and (key not in old or key not in new):
                continue
            if old.get(key) != new.get(key):
                found[f"{group}: {key}"] = (old.get(key), new.get(key))
    for key in ("path", "start_ns", "duration_s"):
        if before.report["bag"][key] != after.report["bag"][key]:
            found[f"bag: {key}"] = (before.report["bag"][key], after.report["bag"][key])
    if before.report["ideal"] != after.report["ideal"]:
        found["ideal"] = (before.report["ideal"], after.report["ideal"])
    return found


def _paired(name: str, before: Evaluation, after: Evaluation) -> Mapping[str, Any] | None:
    """None for a figure that isn't one of each tick."""
    path = PATHS.get(name, ())
    if path[:1] != ("metrics",):
        return None
    stamps, values = [], []
    for stamp in sorted(before.ticks.keys() & after.ticks.keys()):
        old, new = look_up(before.ticks[stamp], path[1:-1]), look_up(after.ticks[stamp], path[1:-1])
        if old is not None and new is not None:
            stamps.append(stamp)
            values.append(float(new) - float(old))
    return mean_interval(values, stamps)
