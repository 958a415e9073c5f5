"""One tick's figures: the prediction and the baselines against what was driven.

Every figure is a float, or None where it can't be told: the future was not recorded that far, or there were not that
many samples. Keys of horizons are seconds ("1.0"), keys of sample counts are numbers ("6").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np

from alpamayo_ros.core import metrics
from alpamayo_ros.core.select import Chosen
from alpamayo_ros.core.types import HORIZON, Array, Observation, Prediction
from alpamayo_ros.evaluation.baselines import BASELINES
from alpamayo_ros.evaluation.ground_truth import Future

SAMPLE_COUNTS = (1, 6, 16)  # k of minADE_k
STEPS = {f"{horizon:.1f}": metrics.steps_of(horizon) for horizon in metrics.HORIZONS_S}

Figures = dict[str, Any]


def score(observation: Observation, prediction: Prediction, chosen: Chosen, future: Future) -> Figures:
    """All figures of a tick that has a prediction."""
    distance = _distances(prediction.xyz, future)
    return {
        "recorded_steps": future.steps,
        "min_ade": _min_ade(distance, prediction.num_samples),
        "chosen": {**_displacement(chosen.xyz, future), **_direction(chosen, future)},
        "best": _best(distance),
        "spread": metrics.mean_pairwise_distance(prediction.xyz, HORIZON),
        "comfort": asdict(metrics.comfort(chosen.actions, chosen.speed)),
        "baselines": {name: _displacement(baseline(observation), future) for name, baseline in BASELINES.items()},
    }


def by_horizon(figure: Any, distance: Array) -> dict[str, float | None]:
    """A figure (distance, steps) -> float at each horizon; None beyond the distances that there are."""
    known = distance.shape[-1]
    return {name: float(figure(distance, steps)) if steps <= known else None for name, steps in STEPS.items()}


def _distances(xyz: Array, future: Future) -> Array:
    """[..., n] m to the n points that are recorded."""
    return metrics.distances(xyz[..., : future.steps, :], future.xyz)


def _min_ade(distance: Array, samples: int) -> dict[str, float | None]:
    """NVIDIA's minADE over the first k samples, at the full horizon."""
    complete = distance.shape[-1] == HORIZON
    return {
        str(k): float(metrics.min_ade(distance[:k], HORIZON)) if complete and samples >= k else None
        for k in SAMPLE_COUNTS
    }


def _best(distance: Array) -> Figures:
    """The best of all K samples, by each of the definitions in core/metrics.py."""
    complete = distance.shape[-1] == HORIZON
    of_best = by_horizon(metrics.min_ade_of_best, distance) if complete else dict.fromkeys(STEPS)
    return {
        "ade": by_horizon(metrics.min_ade, distance),
        "fde": by_horizon(metrics.min_fde, distance),
        "miss": _misses(by_horizon(metrics.min_fde, distance)),
        "ade_of_full_horizon_best": of_best,
    }


def _displacement(xyz: Array, future: Future) -> Figures:
    distance = _distances(xyz, future)
    fde = by_horizon(metrics.fde, distance)
    return {"ade": by_horizon(metrics.ade, distance), "fde": fde, "miss": _misses(fde)}


def _misses(fde: Mapping[str, float | None]) -> dict[str, bool | None]:
    return {name: None if error is None else error > metrics.MISS_DISTANCE for name, error in fde.items()}


def _direction(chosen: Chosen, future: Future) -> Figures:
    """Signed errors at the horizons: along and across the driven direction in m, and of the heading in rad."""
    n = future.steps
    along, across = metrics.longitudinal_lateral(chosen.xyz[:n], future.xyz, future.rotation)
    heading = metrics.heading_error(chosen.rotation[:n], future.rotation)
    return {
        "longitudinal": _at_horizons(along),
        "lateral": _at_horizons(across),
        "heading": _at_horizons(heading),
    }


def _at_horizons(values: Array) -> dict[str, float | None]:
    return {name: float(values[steps - 1]) if steps <= len(values) else None for name, steps in STEPS.items()}


def drawn_error(figures: Figures) -> tuple[float, float] | None:
    """What ticks are ordered by when one is picked to be shown: the chosen path's ADE at the furthest known horizon.

    The first number is that horizon in s, so that ticks with the longest known future are preferred.
    """
    known = [(float(name), error) for name, error in figures["chosen"]["ade"].items() if error is not None]
    return max(known) if known else None


def finite(value: Any) -> Any:
    """The same with None for every number that is not finite, and plain Python types: what JSON can hold."""
    if is_dataclass(value) and not isinstance(value, type):
        return finite(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if isinstance(value, np.ndarray):
        return finite(value.tolist())
    if isinstance(value, np.generic):
        return finite(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if isinstance(value, (str, int, bool)) or value is None else str(value)
