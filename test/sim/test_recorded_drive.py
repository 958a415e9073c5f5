"""Recorded drives: what was seen, what comes next and why belong together."""

import time

import numpy as np
import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.recorded_drive import RecordedDrive, record_drive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.sim.world import World

GENEROUS_RATE = 25.0  # ticks a second; it is six times as fast on a quiet core


@pytest.fixture(scope="module", params=[False, True], ids=["undisturbed", "disturbed"])
def drive(request: pytest.FixtureRequest) -> RecordedDrive:
    return record_drive(4, 20.0, image_size=(24, 40), disturbed=request.param)


def test_shapes(drive: RecordedDrive) -> None:
    assert drive.images.shape == (200, 4, 24, 40, 3)
    assert drive.positions.shape == (200, 3)
    assert drive.rotations.shape == (200, 3, 3)
    assert drive.futures.shape == (200, 64, 3)
    assert drive.future_rotations.shape == (200, 64, 3, 3)
    assert len(drive.sentences) == len(drive.navigation) == len(drive.classes) == len(drive.speeds) == 200


def test_sentences_are_those_of_the_classes(drive: RecordedDrive) -> None:
    assert drive.sentences == tuple(SENTENCE_CLASSES[each] for each in drive.classes)


def test_the_first_point_of_a_plan_is_where_the_vehicle_is_next(drive: RecordedDrive) -> None:
    error = np.linalg.norm(drive.driven[:, 0] - drive.futures[: len(drive.speeds) - 64, 0], axis=-1)
    assert error.max() < 0.03  # a push moves it by a little more than rounding


def test_plans_are_continuous_and_their_headings_are_their_directions(drive: RecordedDrive) -> None:
    steps = np.diff(drive.futures[..., :2], axis=1)
    length = np.linalg.norm(steps, axis=-1)
    assert length.max() < 0.1 * 12.5
    yaw = np.arctan2(drive.future_rotations[..., 1, 0], drive.future_rotations[..., 0, 0])
    middle = (yaw[:, 1:] + yaw[:, :-1]) / 2
    moving = length > 0.1
    direction = np.arctan2(steps[..., 1], steps[..., 0])
    assert np.abs(np.angle(np.exp(1j * (direction - middle))))[moving].max() < 0.02


def test_an_undisturbed_plan_comes_true_where_nothing_changes() -> None:
    drive = record_drive(0, 15.0, image_size=(24, 40))  # nobody ahead, and no red light
    actual = drive.driven
    assert np.linalg.norm(actual - drive.futures[: len(actual)], axis=-1).max() < 0.15


def test_a_disturbed_vehicle_gets_off_its_lane_and_plans_to_return() -> None:
    calm, pushed = (record_drive(2, 20.0, image_size=(16, 16), disturbed=disturbed) for disturbed in (False, True))
    returning = [tick for tick, sentence in enumerate(pushed.sentences) if "back to the middle" in sentence]
    assert returning
    route = World.for_seconds(2, 20.0).route.xy
    for tick in returning:
        ends = pushed.positions[tick] + pushed.rotations[tick] @ pushed.futures[tick, -1]
        assert np.linalg.norm(route - ends[:2], axis=1).min() < 0.3
    furthest = [np.linalg.norm(route - pushed.positions[tick, :2], axis=1).min() for tick in returning]
    assert max(furthest) > 0.5
    assert not any("back to the middle" in sentence for sentence in calm.sentences)


def test_the_same_seed_gives_the_same_drive_and_another_seed_another() -> None:
    first, second, other = (record_drive(seed, 3.0, image_size=(24, 40), disturbed=True) for seed in (7, 7, 8))
    for name in ("images", "positions", "futures", "classes"):
        assert np.array_equal(getattr(first, name), getattr(second, name))
    assert not np.array_equal(first.images, other.images)


def test_it_is_fast_enough_to_train_on() -> None:
    begin = time.process_time()
    record_drive(3, 3.0)
    assert 30 / (time.process_time() - begin) > GENEROUS_RATE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 0.0), "a drive of 0.0 s"), ((0, 1e6), "at most"), ((-1, 1.0), "a world of seed -1")],
)
def test_an_impossible_drive_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        record_drive(*arguments)


def test_pictures_need_a_size() -> None:
    with pytest.raises(ConfigurationError, match="8x16 pixels"):
        record_drive(0, 1.0, image_size=(16, 8))


def test_the_gap_to_a_car_shrinks_by_the_difference_in_speed() -> None:
    drive = record_drive(12, 20.0, image_size=(16, 16))
    gap, speed, change = drive.cars.T
    assert np.array_equal(np.isnan(gap), np.isnan(speed))
    assert np.array_equal(np.isnan(gap), np.isnan(change))
    rest = gap[1:] - gap[:-1] - 0.1 * (speed - drive.speeds)[:-1]  # NaN without a car, large where another comes
    assert np.nanmedian(np.abs(rest)) < 0.02
    assert np.nanmax(np.abs(np.where(np.abs(rest) < 1.0, np.diff(speed) - 0.1 * change[1:], np.nan))) < 0.05
    assert np.nanmin(gap) > 0


def test_its_first_moments_are_a_drive_too(drive: RecordedDrive) -> None:
    first = drive.first(70)
    assert len(first.images) == len(first.sentences) == len(first.cars) == 70
    assert np.array_equal(first.driven, drive.driven[:6])
    assert drive.first(30).driven.shape == (0, 64, 3)
