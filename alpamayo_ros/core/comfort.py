"""How a trajectory would feel to those who sit in it, against the bounds of nuPlan.

Bounds, and the windows and orders of the smoothing, are those of nuPlan's `ego_is_comfortable` (nuplan-devkit,
planning/metrics); its bounds are what its expert drivers stayed within. nuPlan looks at driven trajectories. Here the
planned one is looked at, which is smoother than what a vehicle would make of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from alpamayo_ros.core.types import STEP_NS, Array

DT = STEP_NS * 1e-9  # s


@dataclass(frozen=True)
class Comfort:
    """The extremes along one trajectory, smoothed as in nuPlan."""

    max_acceleration: float  # m/s^2, along the vehicle
    min_acceleration: float  # m/s^2, along the vehicle; negative when it brakes
    lateral_acceleration: float  # m/s^2, the largest magnitude, as of all below
    jerk: float  # m/s^3, along the vehicle
    jerk_of_magnitude: float  # m/s^3: the derivative of the acceleration's magnitude, which nuPlan bounds too
    yaw_rate: float  # rad/s
    yaw_acceleration: float  # rad/s^2

    def within_bounds(self) -> dict[str, bool]:
        """Each figure by its name, whether it keeps to nuPlan's bound."""
        return {name: low <= getattr(self, name) <= high for name, (low, high) in BOUNDS.items()}


BOUNDS: Mapping[str, tuple[float, float]] = {
    "max_acceleration": (-np.inf, 2.40),
    "min_acceleration": (-4.05, np.inf),
    "lateral_acceleration": (0.0, 4.89),
    "jerk": (0.0, 4.13),
    "jerk_of_magnitude": (0.0, 8.37),
    "yaw_rate": (0.0, 0.95),
    "yaw_acceleration": (0.0, 1.93),
}


def comfort(actions: Array, speed: Array) -> Comfort:
    """The extremes along a trajectory, by the unicycle model: v * curvature is the yaw rate, times v sideways.

    Args:
        actions: [T, 2] acceleration in m/s^2 and curvature in 1/m, each held for 0.1 s; T is at least 15.
        speed: [T + 1] m/s from t0 on.
    """
    middle = (speed[:-1] + speed[1:]) / 2  # an action's speed changes linearly over its step
    return comfort_of_motion(actions[:, 0], middle, middle * actions[:, 1])


def comfort_of_motion(acceleration: Array, middle: Array, yaw_rate: Array) -> Comfort:
    """The same of a motion that no actions describe, such as a baseline's.

    Args:
        acceleration: [T] m/s^2 along the vehicle, of each 0.1 s; T is at least 15.
        middle: [T] m/s, the speed in its middle.
        yaw_rate: [T] rad/s.
    """
    along = smoothed(acceleration, window=8, order=2)
    across = smoothed(middle * yaw_rate, window=8, order=2)
    magnitude = smoothed(np.hypot(acceleration, middle * yaw_rate), window=8, order=2)
    heading = np.concatenate([[0.0], np.cumsum(yaw_rate) * DT])
    return Comfort(
        max_acceleration=float(along.max()),
        min_acceleration=float(along.min()),
        lateral_acceleration=_largest(across),
        jerk=_largest(smoothed(along, window=15, order=2, derivative=1) / DT),
        jerk_of_magnitude=_largest(smoothed(magnitude, window=15, order=2, derivative=1) / DT),
        yaw_rate=_largest(smoothed(heading, window=5, order=2, derivative=1) / DT),
        yaw_acceleration=_largest(smoothed(heading, window=5, order=3, derivative=2) / DT**2),
    )


def smoothed(values: Array, *, window: int, order: int, derivative: int = 0) -> Array:
    """Values [n], or their derivative by the index, by polynomials fitted to `window` neighbours (Savitzky and Golay).

    Near the ends the outermost window serves, as in scipy's mode "interp".
    """
    return np.asarray(_filter(len(values), window, order, derivative) @ values)


@cache
def _filter(length: int, window: int, order: int, derivative: int) -> Array:
    """[length, length]."""
    if length < window:
        raise ValueError(f"{length} values, expected at least {window}, as many as a window has")
    matrix = np.zeros((length, length))
    powers = np.arange(order + 1)
    for row in range(length):
        first = min(max(row - window // 2, 0), length - window)
        position = np.arange(first, first + window) - row  # the polynomial's argument is 0 where it is wanted
        coefficients = np.linalg.pinv(position[:, None] ** powers.astype(float))
        factorial = float(np.prod(np.arange(1, derivative + 1)))
        matrix[row, first : first + window] = coefficients[derivative] * factorial
    return matrix


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0))
