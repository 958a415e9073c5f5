"""Which of the samples is driven."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpamayo_ros.core.select import integrate_actions, select
from alpamayo_ros.core.types import Array, ConfigurationError, Prediction


def prediction(actions: list[Array], speed: float = 8.0) -> Prediction:
    driven = [integrate_actions(each, speed) for each in actions]
    xyz, rotation, speeds = (np.stack(each) for each in zip(*driven, strict=True))
    words = ("",) * len(actions)
    return Prediction(xyz, rotation, np.stack(actions), speeds, words, ((),) * len(actions), words, seed=0)


def constant(acceleration: float, curvature: float) -> Array:
    return np.tile([acceleration, curvature], (64, 1))


def test_the_medoid_is_the_one_in_the_middle() -> None:
    predicted = prediction([constant(0, 0.05), constant(0, 0.0), constant(0, 0.01), constant(0, -0.02)])
    chosen = select(predicted, "medoid")
    apart = np.linalg.norm(predicted.xyz[:, None] - predicted.xyz[None], axis=-1).mean(axis=-1).sum(axis=-1)
    assert chosen.index == int(apart.argmin()) in (1, 2)
    np.testing.assert_array_equal(chosen.xyz, predicted.xyz[chosen.index])


def test_an_outlier_is_never_the_medoid() -> None:
    assert select(prediction([constant(0, 0.2), constant(0, 0), constant(0, 0.001)]), "medoid").index != 0


def test_of_equal_samples_the_first_is_chosen() -> None:
    assert select(prediction([constant(0, 0.01)] * 6), "medoid").index == 0


def test_first_is_the_first() -> None:
    assert select(prediction([constant(0, 0.2), constant(0, 0), constant(0, 0)]), "first").index == 0


@given(a=st.floats(-2, 2), b=st.floats(-2, 2), left=st.floats(-0.1, 0.1), right=st.floats(-0.1, 0.1))
def test_mean_drives_the_mean_of_the_actions(a: float, b: float, left: float, right: float) -> None:
    chosen = select(prediction([constant(a, left), constant(b, right)]), "mean")
    xyz, rotation, speed = integrate_actions(constant((a + b) / 2, (left + right) / 2), 8.0)
    assert chosen.index == -1
    np.testing.assert_allclose(chosen.xyz, xyz, atol=1e-9)
    np.testing.assert_allclose(chosen.rotation, rotation, atol=1e-9)
    np.testing.assert_allclose(chosen.speed, speed, atol=1e-9)


def test_mean_is_taken_in_double_precision() -> None:
    predicted = prediction([constant(0.1, 0.02)] * 3)
    single = Prediction(
        *(each.astype(np.float32) for each in (predicted.xyz, predicted.rotation, predicted.actions, predicted.speed)),
        *(predicted.reasoning, predicted.reasoning_token_ids, predicted.finish_reasons),
        seed=0,
    )
    assert {select(single, "mean").xyz.dtype, select(single, "mean").actions.dtype} == {np.dtype(np.float64)}


def test_on_a_circle_the_integrated_path_stays_on_it() -> None:
    xyz, rotation, speed = integrate_actions(constant(0, 0.05), 8.0)
    np.testing.assert_allclose(np.linalg.norm(xyz[:, :2] - [0, 20], axis=-1), 20, atol=0.02)
    assert xyz[0, 1] > 0  # a positive curvature turns left
    np.testing.assert_allclose(speed, 8)
    np.testing.assert_allclose(np.arctan2(rotation[:, 1, 0], rotation[:, 0, 0])[-1], np.angle(np.exp(1j * 64 * 0.04)))


def test_an_unknown_method_says_which_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'best'.*medoid, first, mean"):
        select(prediction([constant(0, 0)]), "best")
