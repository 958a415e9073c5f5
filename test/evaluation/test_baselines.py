"""A baseline is right where its assumption holds."""

from pathlib import Path

import numpy as np
import pytest
from drives import Motion, circle, record, rig, straight, write_bag

from alpamayo_ros.core import metrics
from alpamayo_ros.core.types import HORIZON
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.baselines import (
    BASELINES,
    constant_turn_rate_and_acceleration,
    constant_velocity,
    history_repeated,
    stop,
)
from alpamayo_ros.evaluation.ground_truth import GroundTruth
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.replay import Replay


def errors(folder: Path, motion, baseline) -> np.ndarray:  # type: ignore[no-untyped-def]
    """[ticks, 64] m, over the ticks whose future is recorded to its end."""
    settings = rig()
    with BagReader(write_bag(folder / "bag", record(motion, 12))) as reader:
        inputs = BagInputs(reader, settings)
        truth = GroundTruth(inputs.recorded_poses())
        observations = [tick.observation for tick in Replay(inputs, settings, NullEngine()) if tick.observation]
        futures = [truth.future(each.t0_ns) for each in observations]
    complete = [
        metrics.distances(baseline(each).xyz, future.xyz)
        for each, future in zip(observations, futures, strict=True)
        if future.steps == HORIZON
    ]
    assert len(complete) > 5
    return np.array(complete)


def test_constant_velocity_has_no_error_on_a_straight_drive(tmp_path: Path) -> None:
    assert errors(tmp_path, straight(13.0, heading=-2.0), constant_velocity).max() < 1e-4


def test_it_leaves_a_circle_along_the_tangent(tmp_path: Path) -> None:
    found = errors(tmp_path, circle(10.0, 50.0), constant_velocity)
    # the last step of the history turns half a step behind the tangent at t0
    time = np.arange(1, HORIZON + 1) * 0.1
    angle = 10.0 * time / 50.0
    chord, lag = 50.0 * 2 * np.sin(0.01) / 0.1, 0.01
    tangent = chord * time[:, None] * np.array([np.cos(lag), -np.sin(lag)])
    expected = np.linalg.norm(tangent - 50.0 * np.stack([np.sin(angle), 1 - np.cos(angle)], axis=-1), axis=-1)
    assert found == pytest.approx(np.broadcast_to(expected, found.shape), abs=1e-3)


def test_a_standing_vehicle_makes_stopping_right(tmp_path: Path) -> None:
    assert errors(tmp_path, straight(0.0), stop).max() == 0
    assert errors(tmp_path / "moving", straight(5.0), stop)[:, -1] == pytest.approx(32.0, abs=1e-3)


def braking(speed: float, deceleration: float) -> Motion:
    """Straight on from the fourth second, until it stands."""

    def motion(t: float) -> tuple[float, float, float]:
        braked = min(max(t - 4, 0.0), speed / deceleration)
        return speed * (min(t, 4) + braked) - deceleration * braked**2 / 2, 0.0, 0.0

    return motion


def test_constant_turn_rate_and_acceleration_keeps_to_a_circle(tmp_path: Path) -> None:
    assert errors(tmp_path, circle(10.0, 50.0), constant_turn_rate_and_acceleration).max() < 0.05


def test_the_repeated_history_does_so_too(tmp_path: Path) -> None:
    assert errors(tmp_path, circle(10.0, 50.0), history_repeated).max() < 0.02
    assert errors(tmp_path / "straight", straight(7.0, heading=1.0), history_repeated).max() < 1e-3


def test_braking_is_carried_on_to_a_stop_and_not_beyond(tmp_path: Path) -> None:
    found = errors(tmp_path, braking(6.0, 2.0), constant_turn_rate_and_acceleration)
    # the drive ends after 12 s: the last ticks with a full future are at 4.5 to 5.5 s, in the middle of the braking
    assert found[-1].max() < 0.05


def test_headings_are_those_of_the_motion(tmp_path: Path) -> None:
    settings = rig()
    with BagReader(write_bag(tmp_path / "bag", record(circle(10.0, 50.0), 3))) as reader:
        observations = [t.observation for t in Replay(BagInputs(reader, settings), settings, NullEngine())]
    observation = next(each for each in observations if each is not None)
    turned = 10.0 * np.arange(1, HORIZON + 1) * 0.1 / 50.0
    for baseline, expected in (
        (stop, 0 * turned),
        (constant_velocity, 0 * turned),
        (constant_turn_rate_and_acceleration, turned),
        (history_repeated, turned),
    ):
        assert metrics.yaw(baseline(observation).rotation) == pytest.approx(expected, abs=5e-3), baseline.__name__


@pytest.mark.parametrize("name", BASELINES)
def test_a_vehicle_that_stands_goes_nowhere(tmp_path: Path, name: str) -> None:
    assert errors(tmp_path, straight(0.0), BASELINES[name]).max() < 1e-9
