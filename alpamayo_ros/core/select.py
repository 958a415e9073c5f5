"""Which of the K sampled trajectories to drive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import STEP_NS, Array, ConfigurationError, Prediction

METHODS = ("medoid", "first", "mean")
DT = STEP_NS * 1e-9


@dataclass(frozen=True, eq=False)
class Chosen:
    """One trajectory in ego."""

    index: int  # of the sample; -1 when it is none of them
    xyz: Array  # [64, 3] m
    rotation: Array  # [64, 3, 3]
    actions: Array  # [64, 2] m/s^2 and 1/m
    speed: Array  # [65] m/s


def select(prediction: Prediction, method: str = "medoid") -> Chosen:
    """Choose by `method`.

    medoid: the sample with the smallest mean distance to the others, over all points. first: sample 0.
    mean: the mean of the samples' actions, driven from their common speed; it is none of the samples.

    Raises:
        ConfigurationError: another method.
    """
    if method == "medoid":
        return _sample(prediction, medoid_index(prediction.xyz))
    if method == "first":
        return _sample(prediction, 0)
    if method == "mean":
        return _mean(prediction)
    raise ConfigurationError(f"selection is {method!r}; it has to be one of {', '.join(METHODS)}")


def medoid_index(xyz: Array) -> int:
    """Of samples [K, N, 3], the one with the smallest mean xy distance to the others; the first of equal ones."""
    apart = np.linalg.norm(xyz[:, None, :, :2] - xyz[None, :, :, :2], axis=-1)
    return int(apart.mean(axis=(1, 2)).argmin())


def integrate_actions(actions: Array, initial_speed: float, height: float = 0.0) -> tuple[Array, Array, Array]:
    """Drive accelerations and curvatures [N, 2] from the ego frame's origin.

    The unicycle of NVIDIA's action space (docs/model.md), in float64:
    v' = v + a dt, heading' = heading + c v dt + c a dt^2 / 2, p' = p + (v u(heading) + v' u(heading')) dt / 2.

    Returns:
        xyz [N, 3] m, rotation [N, 3, 3], speed [N + 1] m/s.
    """
    acceleration, curvature = actions[:, 0], actions[:, 1]
    speed = np.concatenate([[initial_speed], initial_speed + np.cumsum(acceleration) * DT])
    turn = curvature * speed[:-1] * DT + 0.5 * curvature * acceleration * DT**2
    heading = np.concatenate([[0.0], np.cumsum(turn)])
    cos, sin = np.cos(heading), np.sin(heading)
    velocity = speed[:, None] * np.stack([cos, sin], axis=-1)
    xy = np.cumsum((velocity[:-1] + velocity[1:]) * (DT / 2), axis=0)
    xyz = np.concatenate([xy, np.full((len(xy), 1), height)], axis=-1)
    rotation = np.zeros((len(xy), 3, 3))
    rotation[:, 0, 0] = rotation[:, 1, 1] = cos[1:]
    rotation[:, 1, 0], rotation[:, 0, 1] = sin[1:], -sin[1:]
    rotation[:, 2, 2] = 1.0
    return xyz, rotation, speed


def _sample(prediction: Prediction, index: int) -> Chosen:
    return Chosen(
        index,
        prediction.xyz[index],
        prediction.rotation[index],
        prediction.actions[index],
        prediction.speed[index],
    )


def _mean(prediction: Prediction) -> Chosen:
    actions = prediction.actions.mean(axis=0, dtype=np.float64)
    height = float(prediction.xyz[:, 0, 2].mean(dtype=np.float64))
    xyz, rotation, speed = integrate_actions(actions, float(prediction.speed[:, 0].mean(dtype=np.float64)), height)
    return Chosen(-1, xyz, rotation, actions, speed)
