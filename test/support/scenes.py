"""Scenes that tests of several layers need."""

from __future__ import annotations

import numpy as np

from alpamayo_ros.core.types import EgoPose, Observation


def observation(t0_ns: int = 0, speed: float = 10.0, epoch: int = 0) -> Observation:
    """Straight on along x at `speed` m/s, without cameras."""
    times = np.arange(-15, 1) * 0.1
    xyz = np.stack([speed * times, np.zeros(16), np.zeros(16)], axis=-1)
    pose = EgoPose(
        t0_ns,
        position=np.array([100.0, 50.0, 0.0]),
        orientation=np.array([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)]),
        linear_velocity=np.array([speed, 0.0, 0.0]),
        angular_velocity=np.zeros(3),
    )
    return Observation(t0_ns, epoch, {}, xyz, np.tile(np.eye(3), (16, 1, 1)), pose)
