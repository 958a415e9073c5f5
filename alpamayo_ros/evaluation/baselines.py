"""What needs no model: every figure of a model is worth as much as it is better than these.

Each baseline takes an observation and gives 64 points [64, 3] in m, in ego, the first at t0 + 0.1 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, Observation

DT = STEP_NS * 1e-9  # s


def stop(observation: Observation) -> Array:
    """The vehicle stands where it is."""
    return np.zeros((HORIZON, 3))


def constant_velocity(observation: Observation) -> Array:
    """Straight on, with the velocity of the last 0.1 s of the ego history.

    The history is what the model is given too. The odometry's twist is not used: sources leave it empty, or give it in
    another frame.
    """
    velocity = (observation.history_xyz[-1] - observation.history_xyz[-2]) / DT
    points: Array = np.outer(np.arange(1, HORIZON + 1) * DT, velocity)
    points[:, 2] = 0.0  # on the plane of the vehicle
    return points


BASELINES: Mapping[str, Callable[[Observation], Array]] = {"stop": stop, "constant_velocity": constant_velocity}
