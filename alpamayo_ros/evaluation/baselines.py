"""What needs no model: every figure of a model is worth as much as it is better than these.

Each baseline takes an observation and gives 64 points [64, 3] in m, in ego, the first at t0 + 0.1 s. All it may use is
the ego history, which the model is given too. The odometry's twist is not used: sources leave it empty, or give it in
another frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from alpamayo_ros.core.metrics import yaw
from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, Observation

DT = STEP_NS * 1e-9  # s
FITTED = 5  # steps of the history that give acceleration and turn rate: 0.5 s
SUBSTEPS = 10  # of a step, for the integral


def stop(observation: Observation) -> Array:
    """The vehicle stands where it is."""
    return np.zeros((HORIZON, 3))


def constant_velocity(observation: Observation) -> Array:
    """Straight on, with the velocity of the last 0.1 s of the ego history."""
    velocity = (observation.history_xyz[-1] - observation.history_xyz[-2]) / DT
    points: Array = np.outer(np.arange(1, HORIZON + 1) * DT, velocity)
    points[:, 2] = 0.0  # on the plane of the vehicle
    return points


def constant_turn_rate_and_acceleration(observation: Observation) -> Array:
    """Speed and acceleration fitted to the last 0.5 s, with the mean turn rate over it; it brakes to a stop at most."""
    steps = np.diff(observation.history_xyz[-FITTED - 1 :, :2], axis=0)
    headings = np.unwrap(yaw(observation.history_rotation[-FITTED - 1 :]))
    middle = (headings[:-1] + headings[1:]) / 2  # a step points where the vehicle looked in its middle
    speeds = (steps[:, 0] * np.cos(middle) + steps[:, 1] * np.sin(middle)) / DT  # negative backwards
    acceleration, speed = np.polyfit((np.arange(FITTED) - FITTED + 0.5) * DT, speeds, 1)
    turn_rate = (headings[-1] - headings[0]) / (FITTED * DT)
    time = (np.arange(HORIZON * SUBSTEPS) + 0.5) * (DT / SUBSTEPS)
    along = speed + acceleration * time
    along[np.signbit(along) != np.signbit(speed)] = 0.0
    velocity = along[:, None] * np.stack([np.cos(turn_rate * time), np.sin(turn_rate * time)], axis=-1)
    points = np.zeros((HORIZON, 3))
    points[:, :2] = np.cumsum(velocity, axis=0)[SUBSTEPS - 1 :: SUBSTEPS] * (DT / SUBSTEPS)
    return points


def history_repeated(observation: Observation) -> Array:
    """The 15 steps of the history once more, and again, each from where the one before ended."""
    xy, headings = observation.history_xyz[:, :2], yaw(observation.history_rotation)
    turns = np.diff(np.unwrap(headings))
    steps = np.diff(xy, axis=0)
    cos, sin = np.cos(headings[:-1]), np.sin(headings[:-1])
    # in the vehicle's frame at the step's beginning
    along, across = steps[:, 0] * cos + steps[:, 1] * sin, steps[:, 1] * cos - steps[:, 0] * sin
    again = np.arange(HORIZON) % len(steps)
    heading = np.concatenate([[0.0], np.cumsum(turns[again])[:-1]])
    cos, sin = np.cos(heading), np.sin(heading)
    points = np.zeros((HORIZON, 3))
    points[:, 0] = np.cumsum(along[again] * cos - across[again] * sin)
    points[:, 1] = np.cumsum(along[again] * sin + across[again] * cos)
    return points


BASELINES: Mapping[str, Callable[[Observation], Array]] = {
    "stop": stop,
    "constant_velocity": constant_velocity,
    "constant_turn_rate_and_acceleration": constant_turn_rate_and_acceleration,
    "history_repeated": history_repeated,
}
