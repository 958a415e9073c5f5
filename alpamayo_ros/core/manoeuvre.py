"""What kind of driving a tick is from: its speed, and what the vehicle did then.

The limits are this project's own.
"""

from __future__ import annotations

import numpy as np

from alpamayo_ros.core.metrics import DT, yaw
from alpamayo_ros.core.types import Array

MANOEUVRES = ("standing", "start", "stop", "left", "right", "straight")  # the first that holds
SPEED_BINS = (0.5, 5.0, 10.0, 15.0, 20.0, 30.0)  # m/s, where one bin ends and the next begins
STANDING = 0.5  # m/s, below which a vehicle stands
MOVING = 1.5  # m/s, from which on it has started, or had not stopped
TURN = 15.0  # degrees of heading over the horizon that make a turn


def manoeuvre(speed: float, xyz: Array, rotation: Array) -> str:
    """The kind of a driven future, one of MANOEUVRES.

    Args:
        speed: m/s at t0.
        xyz: [64, 3] m in ego, driven after t0; its last step gives the speed at the end.
        rotation: [64, 3, 3] ego <- vehicle.
    """
    steps = np.linalg.norm(np.diff(xyz[:, :2], axis=0), axis=-1) / DT
    end = float(steps[-1])
    if max(speed, float(steps.max())) < STANDING:
        return "standing"
    if speed < STANDING and end >= MOVING:
        return "start"
    if speed >= MOVING and end < STANDING:
        return "stop"
    turned = float(np.rad2deg(np.unwrap(np.concatenate([[0.0], yaw(rotation)]))[-1]))
    if abs(turned) < TURN:
        return "straight"
    return "left" if turned > 0 else "right"


def speed_bin(speed: float) -> str:
    """The bin that a speed in m/s belongs to, as a text such as "5-10"."""
    edges = [0.0, *SPEED_BINS]
    number = int(np.searchsorted(SPEED_BINS, speed, side="right"))
    return f"{edges[number]:g}-{edges[number + 1]:g}" if number < len(SPEED_BINS) else f"{edges[-1]:g}+"


def speed_bins() -> list[str]:
    """All of them, in order."""
    return [speed_bin(edge) for edge in (0.0, *SPEED_BINS)]
