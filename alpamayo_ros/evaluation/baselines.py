"""What needs no model: every figure of a model is worth as much as it is better than these.

Each baseline takes an observation and gives 64 points and headings in ego, the first at t0 + 0.1 s. All it may use is
the ego history, which the model is given too. The odometry's twist is not used: sources leave it empty, or give it in
another frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.metrics import yaw
from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, Observation

DT = STEP_NS * 1e-9  # s
FITTED = 5  # steps of the history that give acceleration and turn rate: 0.5 s
SUBSTEPS = 10  # of a step, for the integral


@dataclass(frozen=True, eq=False)
class BaselinePath:
    """Where a vehicle would be, and where it would look."""

    xyz: Array  # [64, 3] m in ego
    heading: Array  # [64] rad, counter-clockwise from the heading at t0

    @property
    def rotation(self) -> Array:
        """[64, 3, 3] ego <- vehicle."""
        cos, sin = np.cos(self.heading), np.sin(self.heading)
        found = np.tile(np.eye(3), (len(self.heading), 1, 1))
        found[:, 0, 0], found[:, 0, 1], found[:, 1, 0], found[:, 1, 1] = cos, -sin, sin, cos
        return found


def stop(observation: Observation) -> BaselinePath:
    """The vehicle stands where it is."""
    return BaselinePath(np.zeros((HORIZON, 3)), np.zeros(HORIZON))


def constant_velocity(observation: Observation) -> BaselinePath:
    """Straight on, with the velocity of the last 0.1 s of the ego history."""
    velocity = (observation.history_xyz[-1] - observation.history_xyz[-2]) / DT
    points: Array = np.outer(np.arange(1, HORIZON + 1) * DT, velocity)
    points[:, 2] = 0.0  # on the plane of the vehicle
    return BaselinePath(points, np.zeros(HORIZON))


def constant_turn_rate_and_acceleration(observation: Observation) -> BaselinePath:
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
    heading = turn_rate * time
    heading[along == 0.0] = heading[along != 0.0][-1] if along.any() else 0.0  # it doesn't turn where it stands
    velocity = along[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    points = np.zeros((HORIZON, 3))
    points[:, :2] = np.cumsum(velocity, axis=0)[SUBSTEPS - 1 :: SUBSTEPS] * (DT / SUBSTEPS)
    return BaselinePath(points, heading[SUBSTEPS - 1 :: SUBSTEPS])


def history_repeated(observation: Observation) -> BaselinePath:
    """The 15 steps of the history once more, and again, each from where the one before ended."""
    xy, headings = observation.history_xyz[:, :2], yaw(observation.history_rotation)
    turns = np.diff(np.unwrap(headings))
    steps = np.diff(xy, axis=0)
    cos, sin = np.cos(headings[:-1]), np.sin(headings[:-1])
    # in the vehicle's frame at the step's beginning
    along, across = steps[:, 0] * cos + steps[:, 1] * sin, steps[:, 1] * cos - steps[:, 0] * sin
    again = np.arange(HORIZON) % len(steps)
    after = np.cumsum(turns[again])
    heading = np.concatenate([[0.0], after[:-1]])
    cos, sin = np.cos(heading), np.sin(heading)
    points = np.zeros((HORIZON, 3))
    points[:, 0] = np.cumsum(along[again] * cos - across[again] * sin)
    points[:, 1] = np.cumsum(along[again] * sin + across[again] * cos)
    return BaselinePath(points, after)


BASELINES: Mapping[str, Callable[[Observation], BaselinePath]] = {
    "stop": stop,
    "constant_velocity": constant_velocity,
    "constant_turn_rate_and_acceleration": constant_turn_rate_and_acceleration,
    "history_repeated": history_repeated,
}
