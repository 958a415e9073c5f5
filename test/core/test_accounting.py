"""No message gets lost in the books, memory is bounded, and a message costs the same in the thousandth second."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Message, builder, frames, ns, odometry, pose_on_straight_road, send

from alpamayo_ros.core.types import Observation, SkipReason

EVENTS = st.one_of(
    st.tuples(st.sampled_from(["wide", "left", "odometry"]), st.integers(-30, 4), st.booleans()),
    st.tuples(st.sampled_from(["reset", "clock", "bad", "zero", "nan", "map"]), st.integers(0, 3), st.booleans()),
)


@settings(deadline=None, max_examples=80)
@given(events=st.lists(EVENTS, min_size=20, max_size=150))
def test_received_is_used_plus_waiting_plus_dropped_after_whatever_comes(events: list[tuple[str, int, bool]]) -> None:
    receiver = builder("wide", "left")
    sent: Counter[str] = Counter()
    now, frame_id, serials = 5.0, "odom", []
    for kind, number, poll in events:
        now += 0.03
        now_ns, stamp_ns = ns(now), ns(now + number / 20)
        if kind == "reset":
            receiver.reset(now_ns)
        elif kind == "clock":
            now -= 2.0 * number
            receiver.clock_jumped(ns(now))
        elif kind == "bad" and serials:
            receiver.mark_bad_image(serials[-1 - number % len(serials)], "garbage")
        elif kind in ("wide", "left", "zero"):
            camera = "left" if kind == "zero" else kind
            sent[camera] += 1
            stamp = 0 if kind == "zero" else stamp_ns
            frame = receiver.add_frame(camera, stamp, b"", "jpeg", now_ns=now_ns)
            if frame is not None and camera == "wide":
                serials.append(frame.serial)
        elif kind in ("odometry", "nan", "map"):
            sent["odometry"] += 1
            frame_id = "map" if kind == "map" else frame_id
            pose = pose_on_straight_road(stamp_ns)
            pose = replace(pose, position=np.full(3, np.nan)) if kind == "nan" else pose
            receiver.add_pose(pose, frame_id=frame_id, now_ns=now_ns)
        if poll:
            receiver.frames_to_prepare()
            receiver.poll(ns(now))
        for name, counts in receiver.counts().items():
            assert counts.received == sent[name]
            assert counts.received == counts.used + counts.waiting + sum(counts.dropped.values())
            assert min(counts.used, counts.waiting, *counts.dropped.values(), 0) == 0


def test_used_are_the_frames_that_were_in_an_observation() -> None:
    receiver = builder("wide")
    used: set[int] = set()
    for message in sorted(frames("wide", 30, end=10) + odometry(end=10), key=lambda m: m.at):
        send(receiver, message)
        result = receiver.poll(ns(message.at))
        if isinstance(result, Observation):
            used |= {frame.serial for frame in result.frames[0]}
    counts = receiver.counts()["wide"]
    assert counts.used == len(used)
    assert counts.dropped["unused"] > 100
    assert receiver.inputs.prepared_unused <= 15


def test_a_bad_image_that_was_used_counts_as_dropped_and_no_longer_as_used() -> None:
    receiver = builder("wide")
    seen = None
    for message in sorted(frames("wide", 10, end=2) + odometry(end=2), key=lambda m: m.at):
        send(receiver, message)
        result = receiver.poll(ns(message.at))
        seen = result if isinstance(result, Observation) else seen
    before = receiver.counts()["wide"]
    assert seen is not None
    receiver.mark_bad_image(seen.frames[0][-1].serial, "garbage")
    receiver.mark_bad_image(seen.frames[0][-1].serial, "garbage")
    after = receiver.counts()["wide"]
    assert (after.used, after.dropped[SkipReason.BAD_IMAGE.value]) == (before.used - 1, 1)
    assert after.adds_up


def test_memory_is_bounded_whatever_the_rate() -> None:
    receiver = builder("wide", "left")
    for k in range(8_000):  # 1 kHz
        now_ns = ns(k / 1000)
        send(receiver, Message("wide", k / 1000, k / 1000), now_ns)
        send(receiver, Message("odometry", k / 1000, k / 1000, pose_on_straight_road(now_ns)), now_ns)
    counts = receiver.counts()
    assert counts["wide"].waiting <= 128
    assert counts["odometry"].waiting <= 4096


def test_the_cost_of_a_message_stays_flat_with_six_cameras_and_a_burst_of_a_hundred() -> None:
    names = ("front", "left", "right", "rear", "rear_left", "rear_right")
    receiver = builder(*names)
    cost: list[float] = []
    for second in range(16):
        stream = [m for name in names for m in frames(name, 16.7, second, second + 1)]
        stream += odometry(hz=100, begin=second, end=second + 1)
        # everything of a second comes at once, as from queues of depth 100
        began = time.perf_counter()
        for message in sorted(stream, key=lambda m: m.stamp):
            send(receiver, message, ns(second + 1))
            receiver.frames_to_prepare()
            receiver.poll(ns(second + 1))
        cost.append((time.perf_counter() - began) / len(stream))
    early, late = np.median(cost[2:6]), np.median(cost[-6:])
    assert late < 2 * early, f"{early * 1e6:.0f} us grew to {late * 1e6:.0f} us"
