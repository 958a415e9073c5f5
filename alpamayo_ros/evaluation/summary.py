"""Figures of many ticks: statistics, each with its n, over all of them and over kinds of driving."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from alpamayo_ros.core.manoeuvre import MANOEUVRES, speed_bin, speed_bins
from alpamayo_ros.evaluation.baselines import BASELINES
from alpamayo_ros.evaluation.bootstrap import mean_interval
from alpamayo_ros.evaluation.scores import SAMPLE_COUNTS, STEPS

Records = Sequence[Mapping[str, Any]]

# Figures whose mean is a bias, beside which their size matters.
SIGNED = ("longitudinal", "lateral", "heading", "difference")
RATES = ("miss", "miss_waymo", "chose_best", "within_bounds")
PAIRED: Mapping[str, tuple[str, ...]] = {  # figures at horizons that a path and a baseline have
    **{kind: (kind,) for kind in ("ade", "fde", "miss", "miss_waymo", "longitudinal", "lateral", "heading")},
    "progress": ("progress", "difference"),
}
UNCOUNTED = ("recorded_steps", "manoeuvre")


def aggregate(figures: Sequence[Any], kind: str = "") -> Any:
    """Figures of many ticks, all of one shape, as statistics of that shape; `kind` is the group that they are of."""
    if not figures:
        return {}
    if not isinstance(figures[0], Mapping):
        known = [value for value in figures if value is not None]
        return _rate(known) if kind in RATES else _statistics(known, signed=kind in SIGNED)
    return {
        key: aggregate([each[key] for each in figures], key if key in (*SIGNED, *RATES) else kind)
        for key in figures[0]
        if key not in UNCOUNTED
    }


def by_speed(records: Records) -> dict[str, Any]:
    """The figures that matter most by the vehicle's speed at t0 in m/s; bins without a tick are left out."""
    return _by(records, speed_bins(), lambda record: speed_bin(record["speed"]))


def by_manoeuvre(records: Records) -> dict[str, Any]:
    """The same by what the vehicle did, of ticks whose future is known to its end; see core/manoeuvre.py."""
    return _by(records, MANOEUVRES, lambda record: str(record["metrics"]["manoeuvre"]))


def against_baselines(records: Records) -> dict[str, Any]:
    """How much the model errs more than each baseline: the mean over ticks of the difference, with its interval.

    Negative where the model is better. All but `min_ade` are of the chosen path: of signed figures
    their sizes, of misses their shares. `min_ade` is that of the first k samples against the baseline's ADE at 6.4 s.
    """
    furthest = list(STEPS)[-1]
    found: dict[str, Any] = {}
    for name in BASELINES:
        other = ("baselines", name)
        found[name] = {
            kind: {
                horizon: _difference(records, ("chosen", *path, horizon), (*other, *path, horizon)) for horizon in STEPS
            }
            for kind, path in PAIRED.items()
        }
        found[name]["first_point"] = _difference(records, ("chosen", "first_point"), (*other, "first_point"))
        found[name]["min_ade"] = {
            str(k): _difference(records, ("min_ade", str(k)), (*other, "ade", furthest)) for k in SAMPLE_COUNTS
        }
    return found


def timing(values: Iterable[float | None]) -> dict[str, Any]:
    """Median and p99 of those that are known; there is one at least."""
    known = [value for value in values if value is not None]
    return {"n": len(known), "median": float(np.median(known)), "p99": float(np.percentile(known, 99))}


def look_up(figures: Any, path: Iterable[str]) -> Any:
    """A figure by the keys that lead to it."""
    for key in path:
        figures = figures[key]
    return figures


def _by(records: Records, names: Sequence[str], name_of: Callable[[Mapping[str, Any]], str]) -> dict[str, Any]:
    scored = [record for record in records if record["metrics"] is not None]
    groups: dict[str, list[Any]] = {name: [] for name in names}
    for record in scored:
        name = name_of(record)
        if name in groups:
            groups[name].append(_headline(record["metrics"]))
    return {name: {"ticks": len(members), **aggregate(members)} for name, members in groups.items() if members}


def _headline(figures: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "min_ade": figures["min_ade"],
        "chosen": {kind: figures["chosen"][kind] for kind in ("ade", "fde", "miss", "miss_waymo")},
        "baselines": {name: {"ade": each["ade"]} for name, each in figures["baselines"].items()},
    }


def _difference(records: Records, model: Sequence[str], baseline: Sequence[str]) -> dict[str, Any]:
    """Over the ticks that know both."""
    differences, stamps = [], []
    for record in records:
        if record["metrics"] is None:
            continue
        own, other = look_up(record["metrics"], model), look_up(record["metrics"], baseline)
        if own is not None and other is not None:
            differences.append(abs(own) - abs(other))
            stamps.append(record["t0_ns"])
    return mean_interval(differences, stamps)


def _rate(values: Sequence[bool]) -> dict[str, Any]:
    return {"n": len(values), "rate": float(np.mean(values)) if values else None}


def _statistics(values: Sequence[float], signed: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"n": len(values), "mean": None, "median": None, "p90": None}
    if values:
        found |= {
            "mean": float(np.mean(values)),
            "median": float(np.median(values)),
            "p90": float(np.percentile(values, 90)),
        }
    if signed:
        found["mean_absolute"] = float(np.mean(np.abs(values))) if values else None
    return found
