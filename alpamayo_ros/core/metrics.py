"""How far predicted trajectories are from the one that was driven.

All of it is open loop: the recorded vehicle did not follow the prediction, so a small error is not good driving, and a
large one need not be bad driving. Trajectories have points 0.1 s apart, the first at t0 + 0.1 s; leading dimensions are
free. Distances are in m and, where nothing else is said, in the xy plane.

Three definitions of minADE are in use, and differ; each function here names its own:

- NVlabs/alpamayo and alpamayo1.5 (published figures): the smallest over samples of the mean over all 64 steps.
- NVlabs/alpamayo-recipes at a shorter horizon: that same sample, then the mean over its first steps.
- NVlabs/alpasim at a shorter horizon: the smallest over samples, chosen anew at each horizon.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import STEP_NS, Array

HORIZONS_S = (1.0, 2.0, 3.0, 5.0, 6.4)
MISS_DISTANCE = 2.0  # m
# Miss thresholds of the Waymo Open Dataset's motion metrics (its challenge's configuration): at 3, 5 and 8 s.
WAYMO_HORIZONS_S, WAYMO_LATERAL, WAYMO_LONGITUDINAL = (3.0, 5.0, 8.0), (1.0, 1.8, 3.0), (2.0, 3.6, 6.0)  # s, m, m
WAYMO_SPEEDS, WAYMO_SCALES = (1.4, 11.0), (0.5, 1.0)  # m/s at t0, between which the thresholds grow
MIN_PROGRESS = 2.0  # m that must have been driven for a share of it to mean anything
DT = STEP_NS * 1e-9  # s


def steps_of(horizon: float) -> int:
    """The number of 0.1 s steps in a horizon in s.

    Raises:
        ValueError: it isn't a positive multiple of 0.1 s.
    """
    steps = round(horizon / DT)
    if steps < 1 or abs(steps * DT - horizon) > 1e-9:
        raise ValueError(f"horizon {horizon} s, expected a positive multiple of {DT} s")
    return steps


def distances(predicted: Array, truth: Array) -> Array:
    """Point-to-point distance [..., T]; `predicted` and `truth` are [..., T, 2] or [..., T, 3], of which xy counts."""
    distance: Array = np.linalg.norm(predicted[..., :2] - truth[..., :2], axis=-1)
    return distance


def distances_3d(predicted: Array, truth: Array) -> Array:
    """The same in space; both are [..., T, 3]."""
    distance: Array = np.linalg.norm(predicted - truth, axis=-1)
    return distance


def ade(distance: Array, steps: int) -> Array:
    """Average displacement error: the mean over the first `steps` of distance [..., T]; gives [...]."""
    return np.asarray(_first(distance, steps).mean(axis=-1))


def fde(distance: Array, steps: int) -> Array:
    """Final displacement error: distance [..., T] at the last of `steps`; gives [...]."""
    return np.asarray(_first(distance, steps)[..., -1])


def min_ade(distance: Array, steps: int) -> Array:
    """The smallest ADE over K samples, chosen at this horizon; distance is [..., K, T], the result [...].

    With all 64 steps this is NVIDIA's published minADE; with fewer, AlpaSim's for a query at t0 + 0.1 s.
    """
    return np.asarray(ade(distance, steps).min(axis=-1))


def min_fde(distance: Array, steps: int) -> Array:
    """The smallest FDE over K samples, chosen at this horizon; distance is [..., K, T], the result [...]."""
    return np.asarray(fde(distance, steps).min(axis=-1))


def min_ade_of_best(distance: Array, steps: int) -> Array:
    """The ADE up to `steps` of the sample whose ADE over all T is smallest: alpamayo-recipes' `min_ade_by_t`.

    distance is [..., K, T], the result [...]. Never below `min_ade` at the same horizon.
    """
    best = ade(distance, distance.shape[-1]).argmin(axis=-1)
    return np.asarray(np.take_along_axis(ade(distance, steps), best[..., None], axis=-1)[..., 0])


def min_ade_queried_at_t0(distance: Array, steps: int) -> Array:
    """AlpaSim's minADE for a query at t0 itself; distance is [..., K, T], the result [...].

    The trajectory then begins with t0, where the distance is 0. It is averaged in, while AlpaSim's index for the
    horizon ends at the same count of points: so the last step of the horizon is left out.
    """
    with_start = np.concatenate([np.zeros_like(distance[..., :1]), distance], axis=-1)
    return min_ade(with_start, steps)


def is_miss(distance: Array, steps: int, threshold: float = MISS_DISTANCE) -> NDArray[np.bool_]:
    """Whether the FDE at `steps` exceeds the threshold in m; distance is [..., T], the result [...]."""
    return np.asarray(fde(distance, steps) > threshold)


def longitudinal_lateral(predicted: Array, truth: Array, truth_rotation: Array) -> tuple[Array, Array]:
    """The error along and across the driven direction, in the vehicle's frame of the truth at each step.

    Args:
        predicted: [..., T, 3] m in ego.
        truth: [T, 3] m in ego.
        truth_rotation: [T, 3, 3] ego <- vehicle.

    Returns:
        [..., T] m, positive where the prediction is ahead of the truth, and [..., T] m, positive where it is to its
        left. The direction is the truth's heading, not its velocity, so that it is defined at standstill.
    """
    heading = yaw(truth_rotation)
    offset = predicted[..., :2] - truth[..., :2]
    cos, sin = np.cos(heading), np.sin(heading)
    return offset[..., 0] * cos + offset[..., 1] * sin, offset[..., 1] * cos - offset[..., 0] * sin


def waymo_thresholds(horizon: float, speed: float) -> tuple[float, float] | None:
    """The lateral and longitudinal miss thresholds in m of the Waymo Open Dataset's motion metrics.

    Between its horizons (3, 5 and 8 s) they are interpolated, so at 6.4 s; below 3 s it has none: None. They are scaled
    by 0.5 at 1.4 m/s and less up to 1 from 11 m/s on; the speed in m/s is the vehicle's at t0.
    """
    if not WAYMO_HORIZONS_S[0] <= horizon <= WAYMO_HORIZONS_S[-1]:
        return None
    scale = np.interp(speed, WAYMO_SPEEDS, WAYMO_SCALES)
    lateral = np.interp(horizon, WAYMO_HORIZONS_S, WAYMO_LATERAL)
    longitudinal = np.interp(horizon, WAYMO_HORIZONS_S, WAYMO_LONGITUDINAL)
    return float(lateral * scale), float(longitudinal * scale)


def path_length(xyz: Array) -> float:
    """m in the xy plane from the origin of ego along [T, 3]."""
    return float(np.linalg.norm(np.diff(xyz[:, :2], axis=0, prepend=0.0), axis=-1).sum())


def heading_error(rotation: Array, truth_rotation: Array) -> Array:
    """Yaw of [..., T, 3, 3] minus that of [T, 3, 3], in rad, -pi to pi."""
    difference = yaw(rotation) - yaw(truth_rotation)
    return np.asarray((difference + np.pi) % (2 * np.pi) - np.pi)


def yaw(rotation: Array) -> Array:
    """Yaw in rad of [..., 3, 3], counter-clockwise about z."""
    return np.asarray(np.arctan2(rotation[..., 1, 0], rotation[..., 0, 0]))


def _first(distance: Array, steps: int) -> Array:
    if not 1 <= steps <= distance.shape[-1]:
        raise ValueError(f"{steps} steps, expected 1 to {distance.shape[-1]}, as many as there are distances")
    return distance[..., :steps]


def mean_pairwise_distance(xyz: Array, steps: int) -> float:
    """Spread of K samples [K, T, 3]: the mean over pairs of their ADE to each other; 0 for one sample."""
    pairs = [ade(distances(a, b), steps) for a, b in itertools.combinations(xyz, 2)]
    return float(np.mean(pairs)) if pairs else 0.0
