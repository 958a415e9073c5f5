"""Clocks and stamps that jump, loop, repeat, come late or come in another frame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rig import Message, builder, frames, ns, observations, odometry, run, send, skips

from alpamayo_ros.core.types import EgoPose, Observation

DRIVE = [*frames("wide", 10), *frames("left", 10), *odometry()]
RIG = ("wide", "left")


def play(receiver, messages, clock_offset: float = 0.0):
    decided = []
    for message in sorted(messages, key=lambda each: each.at):
        now_ns = ns(message.at + clock_offset)
        send(receiver, message, now_ns)
        result = receiver.poll(now_ns)
        if result is not None:
            decided.append(result)
    assert all(counts.adds_up for counts in receiver.counts().values())
    return decided


@pytest.mark.parametrize("told", [True, False], ids=["the node tells of the clock", "only the stamps show it"])
def test_a_looped_bag_resumes_within_one_history_length(told: bool) -> None:
    receiver = builder(*RIG)
    first = play(receiver, DRIVE)
    epoch = receiver.epoch
    if told:
        receiver.clock_jumped(ns(0))
    second = play(receiver, DRIVE)
    assert receiver.epoch == epoch + 1
    again = observations(second)
    assert again[0].t0_ns <= ns(1.5 + 0.1)
    assert {seen.epoch for seen in again} == {epoch + 1}
    same = {seen.t0_ns: seen for seen in observations(first)}
    for seen in again:
        np.testing.assert_array_equal(seen.history_xyz, same[seen.t0_ns].history_xyz)


def test_stamps_that_go_back_while_the_clock_goes_on_are_a_jump() -> None:
    receiver = builder(*RIG, max_input_age=10.0, max_odometry_age=10.0)
    play(receiver, DRIVE)
    decided = play(receiver, DRIVE, clock_offset=3.0)
    assert receiver.epoch == 1
    assert observations(decided)[0].t0_ns <= ns(1.6)


def test_a_wall_clock_set_back_by_five_seconds_costs_one_history_length() -> None:
    receiver = builder(*RIG)
    drive = [*frames("wide", 10, 5, 8), *frames("left", 10, 5, 8), *odometry(begin=5, end=8)]
    play(receiver, drive)
    set_back = [*frames("wide", 10, 3, 6), *frames("left", 10, 3, 6), *odometry(begin=3, end=6)]
    decided = play(receiver, set_back)
    assert skips(decided)[0].reason.value == "time_jump"
    assert observations(decided)[0].t0_ns <= ns(4.7)


@pytest.mark.parametrize("source", ["wide", "odometry"])
def test_one_old_message_is_late_and_three_in_a_row_are_a_jump(source: str) -> None:
    receiver = builder(*RIG)
    play(receiver, DRIVE)
    old = [m for m in DRIVE if m.source == source][:3]
    kept = [send(receiver, message, ns(3)) for message in old]
    assert kept == [False, False, True]
    assert receiver.epoch == 1
    counts = receiver.counts()[source]
    assert counts.dropped["late"] == 2
    assert counts.waiting == 1


def test_late_messages_with_others_between_are_no_jump() -> None:
    receiver = builder(*RIG)
    play(receiver, DRIVE)
    for number, message in enumerate(m for m in DRIVE if m.source == "wide" and m.stamp < 1):
        send(receiver, message, ns(3))
        send(receiver, Message("wide", 3 + number / 100, 3.2))
    assert receiver.epoch == 0


def test_odometry_that_goes_back_by_more_than_a_period_is_sorted_in() -> None:
    receiver = builder("wide")
    messages = odometry(hz=50)
    swapped = [replace(m, at=m.at + 0.05) if k % 7 == 0 else m for k, m in enumerate(messages)]
    in_order = observations(run(builder("wide"), frames("wide", 10) + messages))
    ticks = observations(run(receiver, frames("wide", 10) + swapped))
    assert {t.t0_ns for t in ticks} == {t.t0_ns for t in in_order} - {ns(2.9)} or len(ticks) == len(in_order)
    np.testing.assert_array_equal(ticks[-1].history_xyz[:, 1:], 0)
    assert receiver.epoch == 0


def test_duplicates_are_ignored_and_counted() -> None:
    receiver = builder(*RIG)
    twice = [m for m in DRIVE for _ in range(2)]
    ticks = observations(play(receiver, twice))
    assert len(ticks) == len(observations(play(builder(*RIG), DRIVE)))
    counts = receiver.counts()
    assert {name: counts[name].dropped["duplicate"] for name in counts} == {"wide": 30, "left": 30, "odometry": 150}


def test_a_flushed_builder_remembers_nothing() -> None:
    fresh, used = builder(*RIG), builder(*RIG)
    used.set_navigation("Turn left", ns(1))
    play(used, DRIVE)
    used.reset(ns(3))
    assert used.epoch == 1
    assert used.inputs.odometry.buffer.newest is None
    assert used.observe(ns(3)).numbers == fresh.observe(ns(3)).numbers
    other = [*frames("wide", 12, 3.03, 6), *frames("left", 30, 3.01, 6), *odometry(begin=3, end=6)]
    again, anew = play(used, other), play(fresh, other)
    assert [(type(a), a.t0_ns) for a in again] == [(type(b), b.t0_ns) for b in anew]
    for a, b in zip(observations(again), observations(anew), strict=True):
        assert a.navigation is b.navigation is None
        assert {c: [f.stamp_ns for f in four] for c, four in a.frames.items()} == {
            c: [f.stamp_ns for f in four] for c, four in b.frames.items()
        }


def test_a_changed_odometry_frame_is_a_reset() -> None:
    receiver = builder("wide")
    pose = DRIVE[-1].pose
    assert pose is not None
    assert receiver.add_pose(pose, frame_id="odom", child_frame_id="base_link", now_ns=pose.stamp_ns)
    assert receiver.epoch == 0
    later = replace(pose, stamp_ns=pose.stamp_ns + 20_000_000)
    assert receiver.add_pose(later, frame_id="map", child_frame_id="base_link", now_ns=later.stamp_ns)
    assert receiver.epoch == 1
    assert receiver.odometry_frame == "map"
    assert receiver.counts()["odometry"].waiting == 1


def test_a_clock_that_begins_late_loses_only_what_came_before_it() -> None:
    receiver = builder(*RIG)
    for message in DRIVE[:5]:
        assert not send(receiver, message, now_ns=0)
    assert observations(play(receiver, DRIVE))


def test_time_offsets_are_added_to_the_stamps() -> None:
    from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
    from alpamayo_ros.core.observe import build_observation_builder

    cameras = (CameraConfig("wide", 0), CameraConfig("left", 1, time_offset=-0.2))
    receiver = build_observation_builder(BuilderConfig(cameras, "wide", odometry_time_offset=0.5))
    off = [replace(m, stamp=m.stamp + {"left": 0.2, "odometry": -0.5}.get(m.source, 0), at=m.at + 0.2) for m in DRIVE]
    off = [replace(m, pose=replace(m.pose, stamp_ns=m.pose.stamp_ns - ns(0.5) + ns(0))) if m.pose else m for m in off]
    for message in sorted((m for m in off if m.at <= 3), key=lambda each: each.at):
        send(receiver, message)
    seen = receiver.observe(ns(3))
    assert isinstance(seen, Observation)
    assert [a.stamp_ns for a in seen.frames[0]] == [b.stamp_ns for b in seen.frames[1]]
    assert seen.pose.position[0] == pytest.approx(10 * (seen.t0_ns - ns(0)) * 1e-9)


def test_a_mounted_odometry_gives_the_pose_and_twist_of_base_link() -> None:
    # the sensor is 2 m ahead of base_link and turned to the left; the vehicle turns on the spot around base_link
    rate = 0.5
    receiver = builder("wide", child_to_base=(0.0, 2.0, 0.0, 0.0, 0.0, -np.pi / 2))

    def sensor(stamp_ns: int) -> EgoPose:
        yaw = rate * (stamp_ns - ns(0)) * 1e-9
        half = (yaw + np.pi / 2) / 2
        position = np.array([2 * np.cos(yaw), 2 * np.sin(yaw), 0])
        # at 2 m from the centre it moves sideways at 1 m/s: along its own x axis
        velocity = np.array([2 * rate, 0, 0])
        return EgoPose(
            stamp_ns, position, np.array([0, 0, np.sin(half), np.cos(half)]), velocity, np.array([0, 0, rate])
        )

    seen = observations(run(receiver, frames("wide", 10) + odometry(hz=100, pose=sensor)))[-1]
    np.testing.assert_allclose(seen.history_xyz, 0, atol=1e-4)
    np.testing.assert_allclose(seen.pose.linear_velocity, 0, atol=1e-9)
    np.testing.assert_allclose(seen.pose.angular_velocity, [0, 0, rate], atol=1e-9)
    yaw = np.arctan2(seen.history_rotation[:, 1, 0], seen.history_rotation[:, 0, 0])
    np.testing.assert_allclose(yaw, rate * np.arange(-1.5, 0.01, 0.1), atol=1e-9)


def test_a_navigation_text_is_forgotten_after_its_time() -> None:
    receiver = builder("wide", navigation_timeout=1.0)
    messages = [m for m in DRIVE if m.source != "left"]
    for message in sorted(messages, key=lambda each: each.at):
        send(receiver, message)
    receiver.set_navigation("Turn left in 30m", ns(2.5))
    seen = [receiver.observe(ns(t)) for t in (2.95,)]
    assert isinstance(seen[0], Observation)
    assert seen[0].navigation == "Turn left in 30m"
    assert receiver.navigation_age(ns(3.5)) == pytest.approx(1.0)
    assert receiver.navigation_age(ns(3.501)) is None
    receiver.set_navigation("", ns(3.2))
    assert receiver.navigation_age(ns(3.2)) is None


@pytest.mark.parametrize("heading", [0.0, np.pi / 2])
def test_a_twist_in_the_world_frame_is_noticed_and_does_no_harm(heading: float) -> None:
    def world_twist(stamp_ns: int) -> EgoPose:
        t = (stamp_ns - ns(0)) * 1e-9
        direction = np.array([np.cos(heading), np.sin(heading), 0])
        half = heading / 2
        return EgoPose(
            stamp_ns, 10 * t * direction, np.array([0, 0, np.sin(half), np.cos(half)]), 10 * direction, np.zeros(3)
        )

    receiver = builder("wide")
    ticks = observations(run(receiver, frames("wide", 10) + odometry(pose=world_twist)))
    assert ticks
    mismatch = receiver.inputs.odometry.buffer.speed_error()
    assert mismatch == pytest.approx(10 * np.sqrt(2) if heading else 0, abs=1e-6)
    np.testing.assert_allclose(ticks[-1].history_xyz[:, 0], np.arange(-15, 0.1), atol=1e-6)


def test_a_navigation_text_that_would_keep_the_model_busy_is_refused_and_the_one_before_is_void() -> None:
    receiver = builder("wide")
    receiver.set_navigation("x" * 2000, ns(0))
    assert receiver.navigation_age(ns(1)) == pytest.approx(1.0)
    receiver.set_navigation("x" * 2001, ns(1))
    assert receiver.navigation_age(ns(1)) is None


def test_a_clock_that_begins_is_no_jump_and_keeps_the_navigation_text() -> None:
    receiver = builder(*RIG)
    receiver.set_navigation("Turn left", 0)  # latched, and so there before the clock
    receiver.clock_began(ns(0))
    assert receiver.epoch == 1
    decided = play(receiver, DRIVE)
    assert all("time_jump" not in skip.numbers for skip in skips(decided))
    assert observations(decided)[0].navigation == "Turn left"
