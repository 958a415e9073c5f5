"""What is refused before anybody drives it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rig import builder, frames, observations, odometry, run

from alpamayo_ros.core.checks import InvalidObservationError, check_observation, check_prediction
from alpamayo_ros.core.select import integrate_actions
from alpamayo_ros.core.types import Observation, Prediction


def observation() -> Observation:  # at 10 m/s
    return observations(run(builder("wide"), frames("wide", 10) + odometry()))[-1]


def prediction(speed: float = 10.0, curvature: float = 0.0, samples: int = 3) -> Prediction:
    actions = np.zeros((64, 2))
    actions[:, 1] = curvature
    xyz, rotation, speeds = integrate_actions(actions, speed)
    repeated = [np.repeat(each[None], samples, axis=0) for each in (xyz, rotation, actions, speeds)]
    words = ("",) * samples
    return Prediction(*repeated, words, ((),) * samples, words, seed=0)


def fault(seen: Observation, predicted: Prediction) -> str | None:
    skip = check_prediction(observation=seen, prediction=predicted)
    if skip is None:
        return None
    assert (skip.reason.value, skip.t0_ns) == ("bad_output", seen.t0_ns)
    return str(skip.numbers["bad_output"])


@pytest.mark.parametrize("curvature", [0.0, 0.05, -0.1])
def test_a_path_that_goes_on_as_the_vehicle_does_is_good(curvature: float) -> None:
    assert fault(observation(), prediction(curvature=curvature)) is None
    check_observation(observation())


@pytest.mark.parametrize("name", ["xyz", "rotation", "actions", "speed"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_number_that_is_not_finite_is_bad(name: str, value: float) -> None:
    spoiled = getattr(prediction(), name).copy()
    spoiled[(1, *([0] * (spoiled.ndim - 1)))] = value
    assert name in (fault(observation(), replace(prediction(), **{name: spoiled})) or "")


def test_a_wrong_shape_is_bad() -> None:
    assert "63" in (fault(observation(), replace(prediction(), xyz=prediction().xyz[:, :63])) or "")


def test_a_matrix_that_is_no_rotation_is_bad() -> None:
    for spoil in (1.1 * prediction().rotation, prediction().rotation * [1, 1, -1]):
        assert "rotation" in (fault(observation(), replace(prediction(), rotation=spoil)) or "")


@pytest.mark.parametrize(("ahead", "good"), [(1.9, True), (2.1, False), (-1.9, True), (-2.1, False)])
def test_the_first_point_must_be_within_two_metres_of_where_the_speed_leads(ahead: float, good: bool) -> None:
    moved = prediction().xyz.copy()
    moved[1, 0, 0] += ahead
    assert (fault(observation(), replace(prediction(), xyz=moved)) is None) == good


@pytest.mark.parametrize(("step", "good"), [(14.9, True), (15.1, False), (1e30, False), (1e300, False)])
def test_a_path_makes_no_step_that_no_vehicle_can_drive(step: float, good: bool) -> None:
    xyz = prediction().xyz.copy()
    xyz[1, 40:, 0] += step - 1.0  # it drives 1 m in 0.1 s
    found = fault(observation(), replace(prediction(), xyz=xyz))
    assert (found is None) == good
    assert good or ("'sample': 1, 'point': 40" in found and "in 0.1 s, expected at most 15" in found)


def test_a_path_behind_a_vehicle_that_drives_forward_is_bad() -> None:
    assert "behind" in (fault(observation(), prediction(speed=-8.0)) or "")


@pytest.mark.parametrize(
    "change",
    [
        lambda seen: {"frames": {}},
        lambda seen: {"frames": {0: seen.frames[0][:3]}},
        lambda seen: {"frames": {0: seen.frames[0][::-1]}},
        lambda seen: {"frames": {3: seen.frames[0]}},
        lambda seen: {"history_xyz": seen.history_xyz + 1},
        lambda seen: {"history_xyz": seen.history_xyz[1:]},
        lambda seen: {"history_rotation": 2 * seen.history_rotation},
        lambda seen: {"history_xyz": seen.history_xyz * np.nan},
    ],
)
def test_an_observation_that_breaks_its_definition_is_refused(change: Any) -> None:
    with pytest.raises(InvalidObservationError):
        check_observation(replace(observation(), **change(observation())))
