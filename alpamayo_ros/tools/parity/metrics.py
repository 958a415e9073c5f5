"""Checks metrics.npz: the definitions of minADE and FDE that NVIDIA's repositories use."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.core import metrics
from alpamayo_ros.core.types import Array
from alpamayo_ros.tools.parity.case import Case, CaseResult, Checker, Machine, close, not_supported

TOLERANCE = 1e-4  # m; the expected values are float32

Arrays = dict[str, np.ndarray]
Metric = Callable[[Array, int], Array]


def _cases(path: Path, _machine: Machine) -> Iterator[Case]:
    with np.load(path) as file:
        arrays = dict(file)
    inputs = {"pred_xyz", "gt_xyz", "alpasim/time_deltas_s"}
    for key in sorted(arrays.keys() - inputs):
        yield Case(f"{path.stem}/{key}", partial(_check, f"{path.stem}/{key}", arrays, key))


def _check(name: str, arrays: Arrays, key: str) -> Iterator[CaseResult]:
    predicted, truth = arrays["pred_xyz"].astype(np.float64), arrays["gt_xyz"].astype(np.float64)[:, None]
    measure = metrics.distances_3d if key.endswith("_xyz") else metrics.distances
    value = _value(key, measure(predicted, truth), arrays)
    if value is None:
        yield not_supported(name, f"no metric is called {key}")
    else:
        yield close(name, value, arrays[key], TOLERANCE)


def _value(key: str, distance: Array, arrays: Arrays) -> Array | None:
    whole = distance.shape[-1]
    plain: dict[str, Callable[[], Array]] = {
        "ade_per_sample": lambda: metrics.ade(distance, whole),
        "mean_ade": lambda: metrics.ade(distance, whole).mean(-1),
        "min_ade": lambda: metrics.min_ade(distance, whole),
        "fde_per_sample": lambda: metrics.fde(distance, whole),
        "min_fde": lambda: metrics.min_fde(distance, whole),
        "recipes/min_ade": lambda: metrics.min_ade_of_best(distance, whole),
    }
    at_every_horizon: dict[str, Metric] = {
        "alpasim/min_ade_xy": metrics.min_ade,
        "alpasim/min_ade_xyz": metrics.min_ade,
        "alpasim/min_ade_xy_query_at_t0": metrics.min_ade_queried_at_t0,
    }
    if key in plain:
        return plain[key]()
    if key in at_every_horizon:
        steps = [metrics.steps_of(float(horizon)) for horizon in arrays["alpasim/time_deltas_s"]]
        return np.stack([at_every_horizon[key](distance, count) for count in steps], -1)
    recipe = re.fullmatch(r"recipes/min_ade_by_t=(\d+(?:\.\d+)?)", key)
    if recipe:
        return metrics.min_ade_of_best(distance, metrics.steps_of(float(recipe[1])))
    return None


METRICS = Checker("metrics*.npz", _cases)
