"""Comfort is what a passenger would feel, in nuPlan's figures."""

import numpy as np
import pytest

from alpamayo_ros.core.comfort import Comfort, comfort, smoothed
from alpamayo_ros.core.types import HORIZON, Array

TIMES = np.arange(HORIZON) * 0.1


def felt(acceleration: float | Array, curvature: float | Array = 0.0, speed: float = 10.0) -> Comfort:
    actions = np.stack(np.broadcast_arrays(acceleration, curvature, np.zeros(HORIZON))[:2], axis=-1)
    return comfort(actions, speed + np.concatenate([[0.0], np.cumsum(actions[:, 0]) * 0.1]))


def test_a_steady_curve_pulls_sideways_alone() -> None:
    found = felt(0.0, curvature=-0.02)
    assert found.lateral_acceleration == pytest.approx(2.0)
    assert found.yaw_rate == pytest.approx(0.2)
    for quiet in (found.max_acceleration, found.jerk, found.jerk_of_magnitude, found.yaw_acceleration):
        assert quiet == pytest.approx(0.0, abs=1e-9)
    assert all(found.within_bounds().values())


def test_a_steady_brake_is_a_negative_acceleration_without_a_jerk() -> None:
    found = felt(-1.0)
    assert (found.min_acceleration, found.max_acceleration) == pytest.approx((-1.0, -1.0))
    assert found.jerk == pytest.approx(0.0, abs=1e-9)


def test_an_acceleration_that_grows_steadily_is_a_steady_jerk() -> None:
    assert felt(0.5 * TIMES).jerk == pytest.approx(0.5)


def test_a_curve_that_tightens_steadily_is_a_steady_yaw_acceleration() -> None:
    assert felt(0.0, curvature=0.01 * TIMES, speed=10.0).yaw_acceleration == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("acceleration", "curvature", "broken"),
    [
        (2.5, 0.0, {"max_acceleration"}),
        (-4.1, 0.0, {"min_acceleration"}),
        (0.0, 0.05, {"lateral_acceleration"}),
        (np.where(TIMES < 3, 1.7, -3.2), 0.0, {"jerk"}),
    ],
)
def test_each_bound_is_nuplans(acceleration: float | Array, curvature: float, broken: set[str]) -> None:
    within = felt(acceleration, curvature, speed=30.0 if curvature == 0 else 10.0).within_bounds()
    assert {name for name, kept in within.items() if not kept} == broken


def test_noise_is_smoothed_away_and_a_parabola_is_not() -> None:
    noise = np.random.default_rng(0).normal(size=200)
    assert smoothed(noise, window=15, order=2).std() < 0.5
    index = np.arange(40.0)
    parabola = 3 + 2 * index - 0.5 * index**2
    assert smoothed(parabola, window=8, order=2) == pytest.approx(parabola)
    assert smoothed(parabola, window=15, order=2, derivative=1) == pytest.approx(2 - index)
    assert smoothed(parabola, window=5, order=3, derivative=2) == pytest.approx(np.full(40, -1.0), abs=1e-8)


def test_too_short_a_trajectory_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 15"):
        smoothed(np.zeros(14), window=15, order=2)
