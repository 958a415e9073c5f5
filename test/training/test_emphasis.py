"""Ticks behind cars, before junctions and in bends are drawn more often, by so much as is told."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES, Reason
from alpamayo_ros.training.course import LONGEST
from alpamayo_ros.training.emphasis import Emphasis
from alpamayo_ros.training.examples import DriveExamples, examples_of
from alpamayo_ros.training.settings import TrainingSettings
from alpamayo_ros.training.store import ExampleStore

CPU = torch.device("cpu")
SETTINGS = TrainingSettings(batch=4000, emphasis=Emphasis(cars=4.0, roads=2.0))
REASONS = (Reason.KEEP, Reason.FOLLOW_RIGHT_BEND, Reason.FOLLOW_CAR, Reason.TURN_LEFT, Reason.SPEED_UP)
EXPECTED = [1.0, 2.0, 4.0, 2.0, 4.0]
CAR, NO_CAR = (12.0, 5.0, 0.0), (np.nan,) * 3  # m, m/s, m/s^2


@pytest.fixture(scope="module")
def drive(toy: ModelConfig) -> DriveExamples:
    """Five ticks: a free straight, a bend, behind a car, before a junction, and behind a car before a junction."""
    return replace(
        examples_of(record_drive(1, 2.0), toy),
        sentences=np.array([SENTENCE_CLASSES[reason] for reason in REASONS]),
        navigation=np.array(["", "", "", "Turn left in 30m", "Continue straight"]),
        cars=np.array([NO_CAR, NO_CAR, CAR, NO_CAR, CAR], np.float32),
    )


def times_drawn(toy: ModelConfig, drives: Sequence[DriveExamples], skipped: int = 0) -> list[int]:
    """How often each of the ticks of a store for three drives is drawn."""
    store = ExampleStore(toy, toy.load_vocabulary(), (96, 160), LONGEST, 3, CPU, SETTINGS.emphasis)
    store.skip(skipped)
    store.add(list(drives))
    drawn: list[int] = []
    store.batch = lambda ticks, *_: drawn.extend(ticks.tolist())  # type: ignore[method-assign,assignment]
    store.draw(SETTINGS, torch.Generator().manual_seed(0))
    return np.bincount(drawn, minlength=15).tolist()


def test_a_tick_weighs_as_much_as_the_most_that_applies(drive: DriveExamples) -> None:
    assert SETTINGS.emphasis.weights(drive).tolist() == EXPECTED
    assert Emphasis().weights(drive).tolist() == [1.0] * 5


def test_ticks_are_drawn_by_their_weights(toy: ModelConfig, drive: DriveExamples) -> None:
    counts = times_drawn(toy, [drive])
    assert sum(counts[:5]) == SETTINGS.batch
    assert counts[:5] == pytest.approx(SETTINGS.batch * np.array(EXPECTED) / sum(EXPECTED), rel=0.12)
    assert counts == times_drawn(toy, [drive])


def test_drives_that_came_later_are_drawn_alike_and_those_that_are_not_there_never(
    toy: ModelConfig, drive: DriveExamples
) -> None:
    free = replace(drive, cars=np.full((5, 3), np.nan, np.float32))
    first, second, third = np.reshape(times_drawn(toy, [drive, free], skipped=2), (3, 5)).sum(1)
    assert second == 0  # drive 2 lies at the third place, drive 3 at the first
    assert third / first == pytest.approx(13 / 8, rel=0.12)


def test_a_car_is_ahead_where_the_driver_minds_one() -> None:
    drive = record_drive(12, 20.0, image_size=(16, 16))
    of_cars = {SENTENCE_CLASSES[each] for each in (Reason.SLOW_FOR_CAR, Reason.FOLLOW_CAR, Reason.STOP_FOR_CAR)}
    said = np.array([sentence in of_cars for sentence in drive.sentences])
    assert said.any()
    ahead = ~np.isnan(drive.cars[:, 0])
    assert ahead.sum() > said.sum()
    assert not ahead.all()
    assert ahead[said].mean() > 0.8  # a reason is stated a little longer than it lasts


def test_a_weight_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="a weight has to be 1 or more"):
        Emphasis(cars=0.5)
