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
from alpamayo_ros.core.comfort import Comfort, comfort, comfort_of_motion
from alpamayo_ros.core.manoeuvre import manoeuvre
from alpamayo_ros.core.select import Chosen
from alpamayo_ros.core.types import HORIZON, Array, Observation, Prediction
from alpamayo_ros.evaluation.baselines import BASELINES, BaselinePath
from alpamayo_ros.evaluation.ground_truth import Future

SAMPLE_COUNTS = (1, 6, 16)  # k of minADE_k
STEPS = {f"{horizon:.1f}": metrics.steps_of(horizon) for horizon in metrics.HORIZONS_S}

Figures = dict[str, Any]


def score(observation: Observation, prediction: Prediction, chosen: Chosen, future: Future) -> Figures:
    """All figures of a tick that has a prediction."""
    distance = _distances(prediction.xyz, future)
    speed = speed_at_t0(observation)
    complete = future.steps == HORIZON
    return {
        "recorded_steps": future.steps,
        "manoeuvre": manoeuvre(speed, future.xyz, future.rotation) if complete else None,
        "min_ade": _min_ade(distance, prediction.num_samples),
        "chosen": _errors(chosen.xyz, chosen.rotation, future, speed),
        "best": _best(distance),
        "agreement": _agreement(distance, chosen, future),
        "spread": metrics.mean_pairwise_distance(prediction.xyz, HORIZON),
        **_felt(comfort(chosen.actions, chosen.speed)),
        "baselines": {
            name: {**_errors(path.xyz, path.rotation, future, speed), **_felt(_comfort_of_path(path, speed))}
            for name, path in ((name, baseline(observation)) for name, baseline in BASELINES.items())
        },
    }


def speed_at_t0(observation: Observation) -> float:
    """m/s over the last step of the history."""
    step = observation.history_xyz[-1] - observation.history_xyz[-2]
    return float(np.linalg.norm(step)) / metrics.DT


def by_horizon(figure: Any, distance: Array) -> dict[str, float | None]:
    """A figure (distance, steps) -> float at each horizon; None beyond the distances that there are."""
    known = distance.shape[-1]
    return {name: float(figure(distance, steps)) if steps <= known else None for name, steps in STEPS.items()}


def _felt(felt: Comfort) -> Figures:
    within = felt.within_bounds()
    return {"comfort": asdict(felt), "within_bounds": {**within, "all": all(within.values())}}


def _comfort_of_path(path: BaselinePath, speed: float) -> Comfort:
    """Of one that begins at t0, where the vehicle had that speed (m/s)."""
    way = np.diff(path.xyz[:, :2], axis=0, prepend=0.0)
    middle = np.linalg.norm(way, axis=1) / metrics.DT
    yaw_rate = np.diff(path.heading, prepend=0.0) / metrics.DT
    return comfort_of_motion(np.diff(middle, prepend=speed) / metrics.DT, middle, yaw_rate)


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


def _errors(xyz: Array, rotation: Array, future: Future, speed: float) -> Figures:
    """Of one path, which may be a baseline's: [64, 3] and [64, 3, 3] in ego."""
    return {
        **_displacement(xyz, future),
        **_direction(xyz, rotation, future, speed),
        "first_point": float(_distances(xyz, future)[0]) if future.steps else None,
        "progress": _progress(xyz, future),
    }


def _displacement(xyz: Array, future: Future) -> Figures:
    distance = _distances(xyz, future)
    fde = by_horizon(metrics.fde, distance)
    return {"ade": by_horizon(metrics.ade, distance), "fde": fde, "miss": _misses(fde)}


def _misses(fde: Mapping[str, float | None]) -> dict[str, bool | None]:
    return {name: None if error is None else error > metrics.MISS_DISTANCE for name, error in fde.items()}


def _direction(xyz: Array, rotation: Array, future: Future, speed: float) -> Figures:
    """Signed errors at the horizons: along and across the driven direction in m, and of the heading in rad."""
    n = future.steps
    along, across = metrics.longitudinal_lateral(xyz[:n], future.xyz, future.rotation)
    heading = metrics.heading_error(rotation[:n], future.rotation)
    longitudinal, lateral = _at_horizons(along), _at_horizons(across)
    return {
        "longitudinal": longitudinal,
        "lateral": lateral,
        "heading": _at_horizons(heading),
        "miss_waymo": {name: _misses_waymo(name, lateral[name], longitudinal[name], speed) for name in STEPS},
    }


def _misses_waymo(horizon: str, lateral: float | None, longitudinal: float | None, speed: float) -> bool | None:
    """Whether either error is beyond the threshold that the Waymo Open Dataset has at this speed."""
    thresholds = metrics.waymo_thresholds(float(horizon), speed)
    if thresholds is None or lateral is None or longitudinal is None:
        return None
    return abs(lateral) > thresholds[0] or abs(longitudinal) > thresholds[1]


def _progress(xyz: Array, future: Future) -> Figures:
    """Length of the path less that of the driven one in m, and as a share of it where that is 2 m at least."""
    difference: dict[str, float | None] = dict.fromkeys(STEPS)
    share: dict[str, float | None] = dict.fromkeys(STEPS)
    for name, steps in STEPS.items():
        if steps <= future.steps:
            planned, driven = metrics.path_length(xyz[:steps]), metrics.path_length(future.xyz[:steps])
            difference[name] = planned - driven
            share[name] = planned / driven if driven >= metrics.MIN_PROGRESS else None
    return {"difference": difference, "share": share}


def _agreement(distance: Array, chosen: Chosen, future: Future) -> Figures:
    """Whether the chosen path is the sample of least ADE over the full horizon, and by how many m of ADE it is worse.

    Unknown for one sample, and the first also for a path that is none of the samples. Beside it, what a sample taken
    at random would come to on average.
    """
    if len(distance) < 2 or future.steps < HORIZON:
        unknown = {"chose_best": None, "worse_by": None}
        return {**unknown, "at_random": dict(unknown)}
    of_samples = metrics.ade(distance, HORIZON)
    own = float(metrics.ade(_distances(chosen.xyz, future), HORIZON))
    is_best = None if chosen.index < 0 else bool(of_samples[chosen.index] == of_samples.min())
    return {
        "chose_best": is_best,
        "worse_by": own - float(of_samples.min()),
        "at_random": {
            "chose_best": float((of_samples == of_samples.min()).mean()),
            "worse_by": float(of_samples.mean() - of_samples.min()),
        },
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
