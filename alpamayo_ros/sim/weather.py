"""Light and weather of a drive: colours, haze, brightness and the cameras' noise. Deterministic by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import Array


@dataclass(frozen=True, eq=False)
class Weather:
    """Colours are RGB, 0 to 255."""

    sky_low: Array  # [3] at the horizon
    sky_high: Array  # [3]
    ground: Array  # [3] beside the road
    texture: float  # how much the ground's brightness varies, as a share
    asphalt: Array  # [3]
    haze: Array  # [3]
    haze_distance: float  # m, where things have lost 63 % of their colour
    brightness: float  # a factor on everything
    noise: float  # standard deviation of each pixel

    @classmethod
    def random(cls, seed: int) -> Weather:
        """The weather of that seed."""
        rng = np.random.default_rng([seed, 1_000_003])  # a stream of its own: roads don't depend on the weather
        overcast, season, dusk = rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(0, 1) ** 2
        blue, gray, orange = (
            np.array([96.0, 150.0, 214.0]),
            np.array([168.0, 174.0, 180.0]),
            np.array([232.0, 176.0, 128.0]),
        )
        sky_high = _mix(blue, gray, overcast)
        sky_low = _mix(
            _mix(np.array([196.0, 214.0, 232.0]), np.array([198.0, 202.0, 205.0]), overcast), orange, dusk * 0.6
        )
        summer, autumn = np.array([80.0, 112.0, 54.0]), np.array([136.0, 118.0, 74.0])
        return cls(
            sky_low=sky_low,
            sky_high=_mix(sky_high, np.array([70.0, 76.0, 120.0]), dusk * 0.6),
            ground=_mix(summer, autumn, season) * rng.uniform(0.85, 1.15),
            texture=rng.uniform(0.1, 0.3),
            asphalt=np.full(3, rng.uniform(62.0, 108.0)) + np.array([0.0, 0.0, rng.uniform(0, 6)]),
            haze=_mix(sky_low, np.array([186.0, 192.0, 196.0]), 0.6),
            haze_distance=float(np.exp(rng.uniform(np.log(70.0), np.log(400.0)))),
            brightness=float((1 - 0.4 * dusk) * rng.uniform(0.85, 1.12)),
            noise=float(rng.uniform(1.0, 5.0)),
        )


def _mix(first: Array, second: Array, share: float) -> Array:
    return first + (second - first) * share
