"""Offline ticks are those that the node would have started: with what had arrived by then, and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drives import ODOMETRY, SECOND, START_NS, Message, circle, decode_all, record, rig, straight, write_bag

from alpamayo_ros.core.settings import Settings, tick_seed
from alpamayo_ros.core.types import (
    BadImageError,
    EngineError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
    SkipReason,
)
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.replay import Replay, Tick

IMAGE = "/camera/front_wide/image/compressed"
TELE = "/camera/front_tele/image/compressed"


@contextmanager
def opened(bag: Path, settings: Settings) -> Iterator[BagInputs]:
    with BagReader(bag) as reader:
        yield BagInputs(reader, settings)


def ticks(bag: Path, settings: Settings, engine: NullEngine | None = None, *, ideal: bool = False) -> list[Tick]:
    with opened(bag, settings) as inputs:
        return list(Replay(inputs, settings, engine or NullEngine(), ideal=ideal))


def good(found: Sequence[Tick]) -> list[Tick]:
    return [tick for tick in found if tick.skip is None]


def seconds(found: Sequence[Tick]) -> list[float]:
    """The t0s, after the start of the drive."""
    return [round((tick.t0_ns - START_NS) / SECOND, 3) for tick in found if tick.t0_ns is not None]


def stamps(observation: Observation) -> dict[int, list[int]]:
    return {camera: [frame.stamp_ns for frame in frames] for camera, frames in observation.frames.items()}


def reasons(found: Sequence[Tick]) -> set[SkipReason]:
    return {tick.skip.reason for tick in found if tick.skip is not None}


class TestTheTicks:
    @pytest.mark.parametrize("stride", [0.1, 0.5, 1.0])
    def test_they_are_a_stride_apart_and_begin_when_the_history_is_long_enough(
        self, tmp_path: Path, stride: float
    ) -> None:
        bag = write_bag(tmp_path / "bag", record(straight(10.0), 5))
        found = good(ticks(bag, rig(rate_hz=1 / stride)))
        assert 1.5 <= seconds(found)[0] < 1.5 + stride
        assert np.diff(seconds(found)) == pytest.approx(np.full(len(found) - 1, stride))
        assert seconds(found)[-1] > 5 - stride - 0.01

    def test_a_tick_has_the_inputs_of_its_t0(self, tmp_path: Path) -> None:
        bag = write_bag(tmp_path / "bag", record(circle(10.0, 30.0), 4))
        tick = good(ticks(bag, rig()))[0]
        assert tick.observation is not None
        t0_ns = tick.observation.t0_ns
        (frames,) = tick.observation.frames.values()
        assert [frame.stamp_ns - t0_ns for frame in frames] == [-300_000_000, -200_000_000, -100_000_000, 0]
        angle = 10.0 * (t0_ns - START_NS) * 1e-9 / 30.0
        assert tick.observation.pose.position[:2] == pytest.approx([30 * np.sin(angle), 30 * (1 - np.cos(angle))])
        assert tick.odometry_frame == "odom"

    def test_seed_and_options_are_the_nodes(self, tmp_path: Path) -> None:
        given: list[SamplingOptions] = []
        engine = Recording(given)
        settings = rig(sampling__seed=7, sampling__num_samples=3, sampling__temperature=0.1)
        found = good(ticks(write_bag(tmp_path / "bag", record(straight(10.0), 3)), settings, engine))
        assert [tick.seed for tick in found] == [tick_seed(7, tick.t0_ns or 0) for tick in found]
        assert [options.seed for options in given] == [tick.seed for tick in found]
        assert all((options.num_samples, options.temperature) == (3, 0.1) for options in given)

    def test_each_tick_is_offered_the_reasoning_of_the_one_before(self, tmp_path: Path) -> None:
        given: list[SamplingOptions] = []
        ticks(write_bag(tmp_path / "bag", record(straight(10.0), 4)), rig(), Recording(given))
        assert [options.draft_token_ids for options in given[:3]] == [(), (1,), (2,)]

    def test_but_not_across_a_reset(self, tmp_path: Path) -> None:
        drive = record(straight(10.0), 7)
        for message in drive:
            if message.topic == ODOMETRY and message.seconds > 3.25:
                message.content.header.frame_id = "map"
        given: list[SamplingOptions] = []
        found = good(ticks(write_bag(tmp_path / "bag", drive), rig(), Recording(given)))
        after = next(number for number, tick in enumerate(found) if tick.odometry_frame == "map")
        assert seconds(found)[after] >= 3.25 + 1.5
        assert [options.draft_token_ids for options in given[after : after + 2]] == [(), (after + 1,)]

    def test_frames_are_prepared_before_their_tick(self, tmp_path: Path) -> None:
        engine = Preparing()
        found = good(ticks(write_bag(tmp_path / "bag", record(straight(10.0), 4)), rig(), engine))
        assert len(found) > 3
        assert engine.missing == 0
        assert all(tick.prepare_ms >= 0 for tick in found)


class TestArrival:
    def test_the_order_of_arrival_within_100_ms_changes_nothing(self, tmp_path: Path) -> None:
        drive = record(circle(8.0, 25.0), 5, ("front_wide", "front_tele"))
        settings = rig(("front_wide", "front_tele"))
        random = np.random.default_rng(3)
        lags = {id(message): random.uniform(0, 0.1) for message in drive}
        expected = good(ticks(write_bag(tmp_path / "even", drive), settings))
        found = good(ticks(write_bag(tmp_path / "shuffled", drive, lambda message: lags[id(message)]), settings))
        assert seconds(found) == seconds(expected)
        for tick, other in zip(found, expected, strict=True):
            assert tick.observation is not None
            assert other.observation is not None
            assert stamps(tick.observation) == stamps(other.observation)
            # a pose that has not come is bridged by interpolation between its neighbours
            assert tick.observation.history_xyz == pytest.approx(other.observation.history_xyz, abs=5e-3)

    def test_a_tick_waits_for_odometry_that_comes_late(self, tmp_path: Path) -> None:
        bag = write_bag(tmp_path / "bag", record(straight(10.0), 4), lag_of(ODOMETRY, 0.1))
        found = good(ticks(bag, rig()))
        assert found
        assert all(tick.now_ns - (tick.t0_ns or 0) == 100_000_000 for tick in found)

    def test_odometry_that_comes_too_late_costs_the_tick(self, tmp_path: Path) -> None:
        bag = write_bag(tmp_path / "bag", record(straight(10.0), 4), lag_of(ODOMETRY, 0.6))
        found = ticks(bag, rig())
        assert good(found) == []
        assert SkipReason.ODOMETRY_STALE in reasons(found)

    def test_ideal_arrival_ignores_lags(self, tmp_path: Path) -> None:
        drive = record(straight(10.0), 4)
        late = write_bag(tmp_path / "late", drive, lag_of(ODOMETRY, 0.6))
        expected = good(ticks(write_bag(tmp_path / "even", drive), rig()))
        found = good(ticks(late, rig(), ideal=True))
        assert seconds(found) == seconds(expected)
        assert [tick.now_ns for tick in found] == [tick.now_ns for tick in expected]


class TestSkips:
    @pytest.mark.parametrize(
        ("lost", "reason"),
        [
            (lambda m: m.topic == TELE and 2.25 < m.seconds < 2.75, SkipReason.CAMERA_GAP),
            (lambda m: m.topic == TELE and m.seconds > 2.25, SkipReason.CAMERA_STALE),
            (lambda m: m.topic == TELE, SkipReason.WAITING_FOR_CAMERA),
            (lambda m: m.topic == ODOMETRY and 2.25 < m.seconds < 2.75, SkipReason.ODOMETRY_GAP),
            (lambda m: m.topic == ODOMETRY and m.seconds > 0.1, SkipReason.ODOMETRY_STALE),
            (lambda m: m.topic == ODOMETRY and m.seconds < 2.25, SkipReason.EGO_HISTORY_SHORT),
        ],
        ids=lambda value: str(value) if isinstance(value, SkipReason) else "",
    )
    def test_what_is_missing_is_named(
        self, tmp_path: Path, lost: Callable[[Message], bool], reason: SkipReason
    ) -> None:
        drive = record(straight(10.0), 5, ("front_wide", "front_tele"))
        kept = [message for message in drive if not lost(message)]
        if not any(message.topic == TELE for message in kept):  # the topic is there, but nothing came by then
            last = [message for message in drive if message.topic == TELE][-1]
            kept.append(replace(last, stamp_ns=START_NS + 10 * SECOND))
        found = ticks(write_bag(tmp_path / "bag", kept), rig(("front_wide", "front_tele"), rate_hz=10.0))
        assert reason in reasons(found)

    def test_a_gap_costs_only_the_ticks_around_it(self, tmp_path: Path) -> None:
        drive = [m for m in record(straight(10.0), 5) if m.topic != ODOMETRY or not 2.25 < m.seconds < 2.75]
        found = ticks(write_bag(tmp_path / "bag", drive), rig(rate_hz=10.0))
        assert {tick.skip.reason for tick in found if tick.skip and seconds([tick])[0] > 2.7} == {
            SkipReason.ODOMETRY_GAP
        }
        assert seconds(good(found))[-1] == 5.0

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (BadImageError("torn"), SkipReason.BAD_IMAGE),
            (EngineError("no memory"), SkipReason.ENGINE_ERROR),
            (RuntimeError("something else"), SkipReason.ENGINE_ERROR),
        ],
    )
    def test_a_failing_engine_skips_its_tick_alone(self, tmp_path: Path, error: Exception, reason: SkipReason) -> None:
        calls: list[int] = []

        def fail_once(observation: Observation) -> None:
            calls.append(observation.t0_ns)
            if len(calls) == 2:
                raise error

        found = ticks(write_bag(tmp_path / "bag", record(straight(10.0), 4)), rig(), NullEngine(before=fail_once))
        (failed,) = [tick for tick in found if tick.skip and tick.skip.reason is reason]
        assert failed.t0_ns == calls[1]
        assert failed.skip is not None
        assert str(error) in str(failed.skip.numbers)
        assert len(good(found)) == len(calls) - 1 > 2

    def test_a_prediction_that_can_not_be_is_bad_output(self, tmp_path: Path) -> None:
        found = ticks(write_bag(tmp_path / "bag", record(straight(10.0), 3)), rig(), Broken())
        assert SkipReason.BAD_OUTPUT in reasons(found)
        assert good(found) == []

    def test_a_picture_that_can_not_be_decoded_costs_one_tick_of_a_fast_camera(self, tmp_path: Path) -> None:
        drive = record(straight(10.0), 4, image_rate=30)
        broken = next(m for m in drive if m.topic == IMAGE and m.seconds == pytest.approx(2.0))
        broken.content.data = np.frombuffer(b"no picture", np.uint8)
        found = ticks(write_bag(tmp_path / "bag", drive), rig(rate_hz=10.0), NullEngine(before=decode_all))
        (failed,) = [tick for tick in found if tick.skip and tick.skip.reason is SkipReason.BAD_IMAGE]
        assert failed.t0_ns == START_NS + 2 * SECOND
        assert len(good(found)) > 20

    @pytest.mark.parametrize("images_again", [True, False])
    def test_silent_cameras_count_only_if_they_come_back(self, tmp_path: Path, images_again: bool) -> None:
        drive = record(straight(10.0), 9)
        kept = [m for m in drive if m.topic != IMAGE or m.seconds < 3 or (images_again and m.seconds > 8)]
        settings = rig()
        with opened(write_bag(tmp_path / "bag", kept), settings) as inputs:
            replay = Replay(inputs, settings, NullEngine())
            found = list(replay)
        silent = sum(tick.skip is not None and tick.t0_ns is None for tick in found)
        assert silent + replay.after_last_image >= 8
        assert (silent > 0, replay.after_last_image > 0) == (images_again, not images_again)
        assert seconds(good(found))[-1] == (9.0 if images_again else pytest.approx(2.9, abs=0.5))

    def test_a_bag_without_any_tick_says_why(self, tmp_path: Path) -> None:
        drive = [m for m in record(straight(10.0), 5) if m.topic == ODOMETRY or m.seconds < 0.15]
        settings = rig()
        with opened(write_bag(tmp_path / "bag", drive), settings) as inputs:
            replay = Replay(inputs, settings, NullEngine())
            assert good(list(replay)) == []
            why = replay.why_nothing()
        assert why is not None
        assert why.reason is SkipReason.CAMERA_STALE


def lag_of(topic: str, lag: float) -> Callable[[Message], float]:
    return lambda message: lag if message.topic == topic else 0.0


class Recording(NullEngine):
    """Notes the options, and reasons with the number of its prediction."""

    def __init__(self, given: list[SamplingOptions]) -> None:
        super().__init__()
        self._given = given

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        self._given.append(options)
        made = super().predict(observation, options)
        return replace(made, reasoning_token_ids=((len(self._given),),) * options.num_samples)


class Preparing(NullEngine):
    """Counts frames that come with a tick and were not prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.missing = 0
        self._prepared: set[int] = set()

    def prepare(self, frames: Sequence[Frame]) -> None:
        self._prepared |= {frame.serial for frame in frames}

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        needed = {frame.serial for frames in observation.frames.values() for frame in frames}
        self.missing += len(needed - self._prepared)
        return super().predict(observation, options)


class Broken(NullEngine):
    """Predicts nonsense."""

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        made = super().predict(observation, options)
        return replace(made, xyz=np.full_like(made.xyz, np.nan))
