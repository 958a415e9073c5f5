"""Pushes on steering and pedals, that take the vehicle out of its lane's middle now and then. Deterministic by seed.

Some are short and hard. Some are long and weak: against those the driver steers in vain, and keeps beside the middle,
as one does whose every decision is slightly wrong.
"""

from __future__ import annotations

import numpy as np

from alpamayo_ros.sim.vehicle import steering_for

PAUSE_S, STEERING_S, PEDALS_S = (2.0, 6.0), (0.5, 1.2), (0.5, 1.5)  # shortest and longest
SIDEWAYS, PEDALS = (1.0, 4.5), (0.8, 2.5)  # m/s^2, weakest and strongest
LASTING_S, LASTING_BEND, LASTING_PEDALS = (2.0, 6.0), (0.003, 0.02), (0.2, 1.0)  # s, 1/m, m/s^2: of the long and weak
LASTING_SHARE = 0.4  # of all pushes
LARGEST_STEERING = 0.2  # rad
SLOWEST = 3.0  # m/s; below, steering is pushed no more than there
STEERING_SHARE = 0.7  # of all pushes


class Disturbance:
    """The push of the moment, drawn anew after each pause."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1_000_003 * 3])
        self._left_s = 0.0
        self._pause_s = float(self._rng.uniform(*PAUSE_S))
        self._sideways, self._bend, self._pedals = 0.0, 0.0, 0.0

    def push(self, speed: float, dt: float) -> tuple[float, float]:
        """What is added to acceleration (m/s^2) and steering (rad) for the next dt s, at that speed (m/s)."""
        if self._left_s > 0:
            self._left_s -= dt
            bend = self._bend + self._sideways / max(speed, SLOWEST) ** 2
            return self._pedals, min(max(steering_for(bend), -LARGEST_STEERING), LARGEST_STEERING)
        self._pause_s -= dt
        if self._pause_s <= 0:
            self._begin()
        return 0.0, 0.0

    def _begin(self) -> None:
        rng = self._rng
        side = float(rng.choice([-1.0, 1.0]))
        lasts = rng.random() < LASTING_SHARE
        steers = rng.random() < STEERING_SHARE
        self._sideways = side * float(rng.uniform(*SIDEWAYS)) if steers and not lasts else 0.0
        self._bend = side * float(rng.uniform(*LASTING_BEND)) if steers and lasts else 0.0
        self._pedals = 0.0 if steers else side * float(rng.uniform(*(LASTING_PEDALS if lasts else PEDALS)))
        self._left_s = float(rng.uniform(*(LASTING_S if lasts else STEERING_S if steers else PEDALS_S)))
        self._pause_s = float(rng.uniform(*PAUSE_S))
