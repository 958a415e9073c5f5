"""Which frames make a tick."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import (
    Message,
    builder,
    delayed,
    frames,
    ns,
    observations,
    odometry,
    run,
    seconds,
    send,
    skips,
    stamps,
    standing,
)

from alpamayo_ros.core.lattice import Lattice
from alpamayo_ros.core.types import Observation

RATES = [30, 20, 15, 12, 10, 9.62]


def jittered(messages: list[Message], jitter: float, seed: int) -> list[Message]:
    rng = random.Random(seed)
    moved = [(m, m.stamp + rng.uniform(-jitter, jitter) + jitter) for m in messages]
    return [Message(m.source, stamp, stamp) for m, stamp in moved]


@pytest.mark.parametrize("hz", RATES)
def test_a_camera_gives_a_tenth_of_a_second_on_average_or_its_own_period(hz: float) -> None:
    messages = frames("wide", hz, end=30) + odometry(end=30)
    t0s = [seen.t0_ns for seen in observations(run(builder("wide"), messages))]
    assert np.mean(np.diff(t0s)) * 1e-9 == pytest.approx(max(0.1, 1 / hz), abs=0.0005)
    # every frame of a camera slower than the lattice is used, and no faster one is followed at its own rate
    assert max(np.diff(t0s)) * 1e-9 < 0.1 + 1 / hz


@settings(deadline=None, max_examples=25)
@given(
    anchor=st.sampled_from(RATES),
    side=st.sampled_from([30, 20, 15]),
    phase=st.floats(0, 0.03),
    jitter=st.floats(0, 0.003),
    seed=st.integers(0, 1000),
)
def test_no_frame_is_in_two_sets_and_each_set_is_in_four_ticks_in_a_row(
    anchor: float, side: float, phase: float, jitter: float, seed: int
) -> None:
    messages = jittered(frames("wide", anchor, end=4), jitter, seed)
    messages += jittered(frames("left", side, begin=phase, end=4), jitter, seed + 1)
    ticks = observations(run(builder("wide", "left"), messages + odometry(end=4.2)))
    assert len(ticks) > 15
    for camera in (0, 1):
        places = defaultdict(list)
        for number, tick in enumerate(ticks):
            for place, frame in enumerate(tick.frames[camera]):
                places[frame.serial].append((number, place))
        for uses in places.values():
            # from the newest place to the oldest, one tick after the other: the same set every time
            assert all(b == (a[0] + 1, a[1] - 1) for a, b in pairwise(uses))
        inner = [uses for uses in places.values() if uses[0][0] > 0 and uses[-1][0] < len(ticks) - 1]
        assert inner
        assert all(len(uses) == 4 for uses in inner)


@pytest.mark.parametrize("side", [5, 9.62, 10, 12])
@pytest.mark.parametrize("anchor", [15, 12, 10])
def test_no_frame_of_a_slow_side_camera_is_in_two_sets(anchor: float, side: float) -> None:
    messages = frames("wide", anchor, end=6) + frames("left", side, begin=0.03, end=6) + odometry(end=6)
    for tick in observations(run(builder("wide", "[left]"), messages)):
        assert all(len({frame.serial for frame in four}) == 4 for four in tick.frames.values())


@pytest.mark.parametrize("other", [10, 12, 30])
def test_the_slowest_camera_as_anchor_loses_no_tick(other: float) -> None:
    messages = frames("slow", 9.62, end=30) + frames("other", other, begin=0.03, end=30) + odometry(end=30)
    slow_leads = observations(run(builder("slow", "other"), messages))
    assert max(np.diff([tick.t0_ns for tick in slow_leads])) * 1e-9 < 1.1 / 9.62
    other_leads = observations(run(builder("other", "slow"), messages))
    assert max(np.diff([tick.t0_ns for tick in other_leads])) * 1e-9 > 0.4


def test_the_lattice_settles_at_a_constant_distance_before_the_frames_of_a_slow_camera() -> None:
    lattice = Lattice()
    for k in range(300):
        lattice.add(ns(k / 9.62))
        lattice.trim(ns(k / 9.62 - 1))
    off = [seconds(point.stamp_ns) - seconds(point.time_ns) for point in lattice.points]
    assert off == pytest.approx([10 * (1 / 9.62 - 0.1)] * len(off), abs=1e-4)


@settings(deadline=None, max_examples=30)
@given(
    hz=st.tuples(st.sampled_from(RATES), st.sampled_from(RATES)),
    jitter=st.floats(0, 0.004),
    seed=st.integers(0, 10_000),
    asked=st.booleans(),
)
def test_the_choice_does_not_depend_on_the_order_of_arrival(
    hz: tuple[float, float], jitter: float, seed: int, asked: bool
) -> None:
    messages = jittered(frames("wide", hz[0], end=2.4), jitter, seed)
    messages += jittered(frames("left", hz[1], end=2.4), jitter, seed + 1)
    messages += odometry(hz=50, end=2.5)
    rng = random.Random(seed)
    shuffled = sorted(delayed(messages, (rng.uniform(0, 0.1) for _ in messages)), key=lambda m: m.at)

    def seen(ordered: list[Message], poll: bool) -> object:
        receiver = builder("wide", "left", wait_timeout=0.2)
        for message in ordered:
            send(receiver, message, now_ns=ns(message.at))
            if poll:
                receiver.poll(ns(message.at))
        result = receiver.observe(ns(2.75))  # nothing is waited for any more
        if not isinstance(result, Observation):
            return result.reason
        return result.t0_ns, {camera: [f.stamp_ns for f in four] for camera, four in result.frames.items()}

    in_order = seen(sorted(messages, key=lambda m: m.stamp), poll=False)
    assert seen(shuffled, poll=asked) == in_order


def test_of_a_fast_side_camera_the_frame_nearest_to_the_anchor_is_taken() -> None:
    side = [Message("left", t, t) for t in np.arange(0.013, 2.2, 1 / 30)]
    ticks = observations(run(builder("wide", "left"), frames("wide", 10, end=2) + side + odometry()))
    for tick in ticks:
        for a, b in zip(stamps(tick, 0), stamps(tick, 1), strict=True):
            best = min(side, key=lambda m: abs(m.stamp - a)).stamp
            assert b == pytest.approx(best, abs=1e-6)


def test_of_two_equally_near_frames_the_earlier_is_taken() -> None:
    anchor = frames("wide", 10, end=2)
    side = [Message("left", m.stamp + off, m.stamp + off) for m in anchor for off in (-0.02, 0.02) if m.stamp + off > 0]
    ticks = observations(run(builder("wide", "left"), anchor + side + odometry()))
    assert ticks
    for tick in ticks:
        assert np.allclose(np.subtract(stamps(tick, 1), stamps(tick, 0)), -0.02)


def test_t0_is_the_stamp_of_the_newest_anchor_frame() -> None:
    for tick in observations(run(builder("wide"), frames("wide", 15) + odometry())):
        assert tick.t0_ns == tick.frames[0][-1].stamp_ns == tick.pose.stamp_ns


def test_a_30_hz_camera_spans_three_tenths_of_a_second() -> None:
    ticks = observations(run(builder("wide"), frames("wide", 30) + odometry()))
    assert all(stamps(tick, 0)[-1] - stamps(tick, 0)[0] == pytest.approx(0.3, abs=1e-6) for tick in ticks)


@pytest.mark.parametrize("last", ["wide", "left", "odometry"])
def test_whatever_comes_last_completes_the_tick_at_once(last: str) -> None:
    lag = {"wide": 0.0, "left": 0.0, "odometry": 0.0, last: 0.08}
    messages = frames("wide", 10, lag=lag["wide"]) + frames("left", 10, lag=lag["left"])
    messages += odometry(hz=100, lag=lag["odometry"])
    receiver = builder("wide", "left")
    when = {}
    for message in sorted(messages, key=lambda m: m.at):
        send(receiver, message)
        result = receiver.poll(ns(message.at))
        if isinstance(result, Observation):
            when[seconds(result.t0_ns)] = message.at
    late = [at - t0 for t0, at in when.items()]
    assert len(late) >= 14
    assert max(late) == pytest.approx(0.08, abs=1e-6)


def test_the_newest_complete_tick_is_taken_and_older_ones_are_not_used_instead() -> None:
    # the side camera's frame of 2.0 s comes just after that of 2.1 s
    side = [Message("left", m.stamp, 2.101 if m.stamp == 2.0 else m.at) for m in frames("left", 10, end=2.5)]
    decided = run(builder("wide", "left"), frames("wide", 10, end=2.5) + side + odometry())
    t0s = [seconds(tick.t0_ns) for tick in observations(decided)]
    assert 2.0 not in t0s
    assert {1.9, 2.1, 2.2} <= set(t0s)
    assert t0s == sorted(t0s)


@pytest.mark.parametrize(("rate", "every"), [(10.0, 1), (5.0, 2), (2.0, 5), (1.0, 10)])
@pytest.mark.parametrize("hz", [10, 30, 12])
def test_the_rate_counts_ticks_by_their_t0(rate: float, every: int, hz: float) -> None:
    ticks = observations(run(builder("wide", rate_hz=rate), frames("wide", hz, end=12) + odometry(end=12)))
    full = observations(run(builder("wide"), frames("wide", hz, end=12) + odometry(end=12)))
    assert [tick.t0_ns for tick in ticks] == [tick.t0_ns for tick in full][::every]


def test_the_rate_is_kept_on_average_also_where_it_is_no_part_of_ten() -> None:
    ticks = observations(run(builder("wide", rate_hz=3.0), frames("wide", 10, end=21) + odometry(end=21)))
    assert np.mean(np.diff([tick.t0_ns for tick in ticks])) * 1e-9 == pytest.approx(1 / 3, abs=0.01)


def test_an_optional_camera_that_is_missing_is_left_out_and_costs_nothing() -> None:
    with_tele = frames("wide", 10, end=4) + frames("tele", 10, end=2.05, lag=0.01) + odometry(hz=100, end=4)
    decided = run(builder("wide", "[tele]"), with_tele)
    ticks = {seconds(tick.t0_ns): sorted(tick.frames) for tick in observations(decided)}
    assert ticks[1.9] == [0, 1]  # waited for, although it comes after the anchor
    assert ticks[3.0] == [0]
    assert [t for t in np.round(np.arange(1.5, 3.9, 0.1), 6) if t not in ticks] == []


def test_an_anchor_that_begins_again_in_another_phase_is_followed_without_delay() -> None:
    for phase in np.arange(0.005, 0.3, 0.01):
        messages = frames("wide", 10, end=1.85) + frames("wide", 10, begin=1.8 + phase, end=2.45) + odometry(hz=100)
        receiver = builder("wide")
        last = max(m.at for m in messages if m.source == "wide")
        for message in sorted(messages, key=lambda m: (m.at, m.source == "wide")):
            if message.at <= last:
                send(receiver, message)
        seen = receiver.observe(ns(last + 0.02))
        assert not isinstance(seen, Observation) or seen.t0_ns >= ns(last - 0.1001)
        for message in odometry(hz=100, begin=last - 0.005, end=last + 0.03):
            send(receiver, message)
        seen = receiver.observe(ns(last + 0.03))
        assert isinstance(seen, Observation)
        assert seconds(seen.t0_ns) == pytest.approx(last, abs=1e-6)


def test_cameras_come_in_the_order_of_their_index_whatever_the_configuration_says() -> None:
    ticks = observations(
        run(
            builder("wide", "left", "tele"),
            [*frames("tele", 10), *frames("left", 10), *frames("wide", 10), *odometry()],
        )
    )
    assert all(list(tick.frames) == [0, 1, 2] for tick in ticks)


def test_one_camera_that_misses_every_third_frame_is_named() -> None:
    side = [m for k, m in enumerate(frames("left", 10)) if k % 3]
    decided = run(builder("wide", "left"), frames("wide", 10) + side + odometry())
    assert not observations(decided)
    assert {skip.reason.value for skip in skips(decided)} <= {"camera_gap", "ego_history_short"}
    assert skips(decided)[-1].reason.value == "camera_gap"


def test_a_camera_that_comes_one_frame_later_than_the_others_costs_no_tick() -> None:
    side = frames("left", 10, lag=0.1)
    ticks = observations(run(builder("wide", "left"), frames("wide", 10) + side + odometry()))
    assert len(ticks) >= 14
    assert all(stamps(tick, 0) == stamps(tick, 1) for tick in ticks)


def test_at_30_hz_a_fifth_of_the_frames_may_be_lost() -> None:
    rng = random.Random(0)
    kept = [m for name in ("wide", "left") for m in frames(name, 30, end=20) if rng.random() > 0.2]
    decided = run(builder("wide", "left"), kept + odometry(hz=100, end=20))
    assert len(observations(decided)) > 0.9 * 10 * 18.4


def test_frames_are_prepared_once_and_before_the_tick() -> None:
    receiver = builder("wide", "left")
    prepared: list[int] = []
    for message in sorted(frames("wide", 30) + frames("left", 30) + odometry(), key=lambda m: m.at):
        send(receiver, message)
        prepared += [frame.serial for frame in receiver.frames_to_prepare()]
        result = receiver.poll(ns(message.at))
        if isinstance(result, Observation):
            assert {f.serial for four in result.frames.values() for f in four} <= set(prepared)
    assert len(prepared) == len(set(prepared))
    assert len(prepared) <= 2 * 31


def test_an_engine_slower_than_the_lattice_finds_all_frames_but_the_newest_prepared() -> None:
    cameras = ("wide", "left", "right", "tele")
    receiver = builder(*cameras)
    lags = zip(cameras, (0.02, 0.03, 0.025, 0.04), (0.0, 0.004, 0.011, 0.02), strict=True)
    messages = [m for name, lag, phase in lags for m in frames(name, 30, begin=phase, end=10, lag=lag)]
    prepared: set[int] = set()  # given out before the last message
    given: set[int] = set()  # with the last message: on its way
    free_at, ticks = 0.0, 0
    waits: Observation | None = None  # the newest, for an engine that is busy
    for message in sorted(messages + odometry(hz=100, end=10), key=lambda m: m.at):
        if waits is not None and message.at >= free_at:
            used = {f.serial for four in waits.frames.values() for f in four[:-1]}
            assert used <= prepared
            ticks, free_at, waits = ticks + 1, message.at + 0.35, None
        prepared |= given
        send(receiver, message)
        given = {frame.serial for frame in receiver.frames_to_prepare()}
        result = receiver.poll(ns(message.at))
        waits = result if isinstance(result, Observation) else waits
    assert ticks > 20


def test_serial_numbers_are_never_used_twice() -> None:
    first, second = builder("wide"), builder("wide")
    serials = []
    for receiver in (first, second):
        for k in range(5):
            frame = receiver.add_frame("wide", ns(k / 10), b"", "jpeg", now_ns=ns(k / 10))
            assert frame is not None
            serials.append(frame.serial)
        receiver.reset(ns(1))
    assert len(set(serials)) == 10


def test_four_frames_make_the_first_tick() -> None:
    decided = run(builder("wide", "left"), frames("wide", 10) + frames("left", 10) + odometry(pose=standing))
    assert stamps(observations(decided)[0], 0) == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.parametrize("hz", [10, 20, 30])
def test_a_camera_that_jitters_gives_the_nearest_frame_too(hz: float) -> None:
    rng = np.random.default_rng(0)
    chosen, nearest = [], []
    for phase in rng.random(20) / hz:
        jitter = [message.stamp + phase + rng.normal(0, 0.003) for message in frames("left", hz, begin=0.02, end=4)]
        left = [Message("left", round(stamp, 6), round(stamp, 6) + 0.01) for stamp in jitter]
        decided = run(builder("wide", "left"), frames("wide", 10, end=4) + left + odometry(end=4))
        for observation in observations(decided):
            t0 = stamps(observation, 0)[-1]
            chosen.append(stamps(observation, 1)[-1])
            nearest.append(min((message.stamp for message in left), key=lambda stamp, t0=t0: abs(stamp - t0)))
    assert len(chosen) > 400
    assert np.mean(np.abs(np.subtract(chosen, nearest)) > 1e-6) < 0.01
