"""Every reason of the observation builder, each from the input that leads to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rig import Message, builder, frames, ns, observations, odometry, run, send, skips, standing

from alpamayo_ros.core.types import EgoPose, Observation, Skip, SkipReason


def asked(receiver, messages, at: float) -> Observation | Skip:
    for message in sorted(messages, key=lambda each: each.at):
        send(receiver, message)
    return receiver.observe(ns(at))


def reason(result: Observation | Skip) -> str:
    return result.reason.value if isinstance(result, Skip) else "ok"


RIG = ("wide", "left")
GOOD = [*frames("wide", 10), *frames("left", 10), *odometry()]


def without(source: str, end: float = 9.0, begin: float = 0.0) -> list[Message]:
    return [m for m in GOOD if m.source != source or not begin <= m.stamp < end]


def test_with_everything_there_it_is_ok() -> None:
    assert reason(asked(builder(*RIG), GOOD, 2.95)) == "ok"


@pytest.mark.parametrize("blocked", ["disabled", "engine_not_ready", "clock_stopped"])
def test_what_the_node_says_blocks_until_it_is_taken_back(blocked: str) -> None:
    receiver = builder(*RIG)
    receiver.block(SkipReason(blocked), why="a test")
    decided = run(receiver, GOOD)
    assert {skip.reason.value for skip in skips(decided)} == {blocked}
    assert not observations(decided)
    assert skips(decided)[-1].numbers[blocked] == {"why": "a test"}
    receiver.unblock(SkipReason(blocked))
    assert reason(receiver.observe(ns(2.95))) == "ok"


def test_time_jump_is_said_until_a_history_is_there_again() -> None:
    receiver = builder(*RIG)
    run(receiver, GOOD)
    receiver.clock_jumped(ns(0))
    decided = run(receiver, [m for m in GOOD if m.at < 2])
    assert {skip.reason.value for skip in skips(decided)} == {"time_jump"}
    assert observations(decided)[0].t0_ns == ns(1.5)


def test_zero_stamp_is_rejected_and_named() -> None:
    receiver = builder(*RIG)
    for message in without("left"):
        send(receiver, message)
    for k in range(5):
        assert receiver.add_frame("left", 0, b"", "jpeg", now_ns=ns(2.9 + k / 100)) is None
    assert reason(receiver.observe(ns(2.95))) == "zero_stamp"
    assert receiver.counts()["left"].dropped == {"zero_stamp": 5}


def test_good_frames_among_zero_stamps_are_used() -> None:
    receiver = builder(*RIG)
    for message in sorted(GOOD, key=lambda each: each.at):
        send(receiver, message)
        receiver.add_frame("left", 0, b"", "jpeg", now_ns=ns(message.at))
    assert reason(receiver.observe(ns(2.95))) == "ok"


def test_stamp_in_future_is_rejected_and_named() -> None:
    ahead = [replace(m, at=m.stamp - 0.2) for m in GOOD if m.source == "left"]
    result = asked(builder(*RIG), without("left") + ahead, 2.95)
    assert reason(result) == "stamp_in_future"


def test_a_stamp_within_the_tolerance_of_the_clock_is_taken() -> None:
    ahead = [replace(m, at=m.stamp - 0.09) if m.source == "left" else m for m in GOOD]
    assert reason(asked(builder(*RIG), ahead, 2.95)) == "ok"


def test_a_clock_that_begins_at_zero_as_a_simulators_does() -> None:
    receiver = builder(*RIG)
    assert reason(receiver.observe(0)) == "waiting_for_camera"
    send(receiver, Message("wide", 0.0, 0.0), now_ns=1)  # far ahead of that clock
    assert reason(receiver.observe(100_000_000)) == "stamp_in_future"


def test_waiting_for_camera() -> None:
    result = asked(builder(*RIG), without("left"), 2.95)
    assert reason(result) == "waiting_for_camera"
    assert isinstance(result, Skip)
    assert "left" in str(result.numbers["waiting_for_camera"])


def test_nothing_at_all_is_named_too() -> None:
    result = builder(*RIG).observe(ns(1))
    assert reason(result) == "waiting_for_camera"
    assert isinstance(result, Skip)
    assert list(result.numbers) == ["waiting_for_camera", "waiting_for_odometry"]


def test_camera_stale() -> None:
    assert reason(asked(builder(*RIG), without("left", begin=2.2), 2.95)) == "camera_stale"


def test_a_camera_whose_stamps_are_ten_seconds_behind_is_stale() -> None:
    behind = [replace(m, stamp=m.stamp - 10) for m in GOOD if m.source == "left"]
    assert reason(asked(builder(*RIG), without("left") + behind, 2.95)) == "camera_stale"


def test_the_anchor_that_stops_is_stale_and_poll_says_so_again_and_again() -> None:
    decided = run(builder(*RIG), without("wide", begin=1.85))
    assert {skip.reason.value for skip in skips(decided)[-4:]} == {"camera_stale"}


def test_camera_gap() -> None:
    result = asked(builder(*RIG), without("left", begin=2.65, end=2.75), 2.95)
    assert reason(result) == "camera_gap"


def test_a_gap_of_the_anchor() -> None:
    messages = [m for m in without("wide", begin=2.65, end=2.75) if m.at <= 2.8]
    assert reason(asked(builder(*RIG), messages, 2.97)) == "camera_gap"


def test_camera_skew_of_a_camera_that_is_always_off_by_more_than_the_tolerance() -> None:
    off = [Message("left", m.stamp + 0.04, m.at + 0.04) for m in frames("left", 10)]
    result = asked(builder(*RIG, sync_tolerance=0.02), without("left") + off, 2.96)
    assert reason(result) == "camera_skew"


def test_camera_skew_of_a_camera_whose_stamps_lag() -> None:
    off = [replace(m, stamp=m.stamp - 0.33) for m in GOOD if m.source == "left" and m.stamp > 0.4]
    assert reason(run(builder(*RIG), without("left") + off)[-1]) == "camera_skew"


def test_bad_image_until_the_frame_is_out_of_the_tick() -> None:
    receiver = builder(*RIG)
    decided = []
    for message in sorted(GOOD, key=lambda each: each.at):
        send(receiver, message)
        result = receiver.poll(ns(message.at))
        if isinstance(result, Observation) and result.t0_ns == ns(2.0):
            receiver.mark_bad_image(result.frames[1][-1].serial, "truncated JPEG")
        if result is not None and result.t0_ns is not None and result.t0_ns > ns(2.0):
            decided.append(result)
    # the tick of 2.3 s has it too, but the complete one of 2.4 s is there before its time to wait is over
    assert [reason(each) for each in decided[:3]] == ["bad_image", "bad_image", "ok"]
    assert decided[2].t0_ns == ns(2.4)
    assert receiver.counts()["left"].dropped["bad_image"] == 1
    assert receiver.counts()["left"].adds_up


def test_a_bad_image_of_the_anchor_is_named_too() -> None:
    receiver = builder("wide")
    decided = []
    for message in sorted(without("left"), key=lambda each: each.at):
        send(receiver, message)
        result = receiver.poll(ns(message.at))
        if isinstance(result, Observation) and result.t0_ns == ns(2.0):
            receiver.mark_bad_image(result.frames[0][-1].serial, "truncated JPEG")
        if result is not None and result.t0_ns is not None and result.t0_ns > ns(2.0):
            decided.append(result)
    assert {reason(each) for each in decided[:2]} == {"bad_image"}
    assert reason(decided[-1]) == "ok"
    assert receiver.counts()["wide"].dropped["bad_image"] == 1


def test_a_changed_size_is_a_bad_image_until_all_frames_have_it() -> None:
    sized = [replace(m, size=(480, 640) if m.stamp < 1.95 else (720, 1280)) for m in GOOD]
    decided = [each for each in run(builder(*RIG), sized) if each.t0_ns is not None and each.t0_ns >= ns(1.9)]
    assert [reason(each) for each in decided[:4]] == ["ok", "bad_image", "bad_image", "ok"]
    assert [each.t0_ns for each in decided[:4]] == [ns(1.9), ns(2.0), ns(2.1), ns(2.3)]


def test_waiting_for_odometry() -> None:
    assert reason(asked(builder(*RIG), without("odometry"), 2.95)) == "waiting_for_odometry"


def test_odometry_stale() -> None:
    assert reason(asked(builder(*RIG), without("odometry", begin=2.4), 2.95)) == "odometry_stale"


def spoiled(message: Message, **changes: object) -> Message:
    assert message.pose is not None
    return replace(message, pose=replace(message.pose, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"position": np.array([np.nan, 0, 0])},
        {"orientation": np.zeros(4)},
        {"linear_velocity": np.array([np.inf, 0, 0])},
    ],
)
def test_bad_odometry(changes: dict[str, np.ndarray]) -> None:
    messages = [spoiled(m, **changes) if m.source == "odometry" and m.stamp > 2 else m for m in GOOD]
    receiver = builder(*RIG)
    result = asked(receiver, messages, 2.95)
    assert reason(result) == "bad_odometry"
    assert receiver.counts()["odometry"].dropped["bad_odometry"] == 49


def test_one_bad_pose_among_good_ones_does_no_harm() -> None:
    messages = [
        spoiled(m, position=np.full(3, np.nan)) if m.source == "odometry" and round(m.stamp * 50) % 5 == 0 else m
        for m in GOOD
    ]
    assert reason(asked(builder(*RIG), messages, 2.95)) == "ok"


def moved(message: Message, by: float) -> Message:
    assert message.pose is not None
    return spoiled(message, position=message.pose.position + np.array([0, by, 0]))


def test_odometry_jump_until_the_history_before_it_is_not_needed() -> None:
    messages = [moved(m, 50.0) if m.source == "odometry" and m.stamp >= 2 else m for m in GOOD + later()]
    decided = [each for each in run(builder(*RIG), messages) if each.t0_ns is not None and each.t0_ns >= ns(1.9)]
    assert [reason(each) for each in decided[:1]] == ["ok"]
    assert {reason(each) for each in decided if ns(2.0) <= each.t0_ns < ns(3.5)} == {"odometry_jump"}
    assert reason(decided[-1]) == "ok"
    assert np.abs(observations(decided)[-1].history_xyz[:, 1]).max() < 1e-9


def later() -> list[Message]:
    return [*frames("wide", 10, 3, 4), *frames("left", 10, 3, 4), *odometry(begin=3, end=4)]


def test_a_twist_of_zeros_makes_no_jumps() -> None:
    messages = [spoiled(m, linear_velocity=np.zeros(3)) if m.pose else m for m in GOOD]
    slow = [m for m in messages if m.source != "odometry" or round(m.stamp * 50) % 5 == 0]
    assert reason(asked(builder(*RIG), slow, 2.95)) == "ok"


def test_odometry_gap() -> None:
    assert reason(asked(builder(*RIG), without("odometry", begin=2.0, end=2.35), 2.95)) == "odometry_gap"


def test_ego_history_short() -> None:
    assert reason(asked(builder(*RIG), without("odometry", end=2.0), 2.95)) == "ego_history_short"


def test_at_standstill_the_first_pose_stands_for_the_missing_ones() -> None:
    messages = [m for m in GOOD if m.source != "odometry"] + odometry(begin=2.5, pose=standing)
    result = asked(builder(*RIG), messages, 2.95)
    assert isinstance(result, Observation)
    assert not result.history_xyz.any()
    assert reason(asked(builder(*RIG, standstill_padding=False), messages, 2.95)) == "ego_history_short"


def test_at_walking_pace_nothing_stands_for_the_missing_ones() -> None:
    def walking(stamp_ns: int) -> EgoPose:
        return replace(standing(stamp_ns), position=np.array([1.0 * (stamp_ns - ns(0)) * 1e-9, 0, 0]))

    for pose in (walking, lambda stamp: replace(walking(stamp), linear_velocity=None)):
        messages = [m for m in GOOD if m.source != "odometry"] + odometry(begin=2.5, pose=pose)
        assert reason(asked(builder(*RIG), messages, 2.95)) == "ego_history_short"


def test_of_several_reasons_the_first_is_reported_and_all_are_in_the_numbers() -> None:
    messages = [m for m in without("left", begin=2.2) if m.source != "odometry" or m.stamp < 2.0]
    result = asked(builder(*RIG), messages, 2.95)
    assert isinstance(result, Skip)
    assert list(result.numbers)[:2] == ["camera_stale", "camera_gap"]
    assert {"odometry_stale"} <= set(result.numbers)
    assert result.reason is SkipReason.CAMERA_STALE


def test_a_tick_is_skipped_once_its_time_to_wait_is_over_and_not_before() -> None:
    receiver = builder(*RIG)
    for message in sorted(without("left", begin=2.45), key=lambda each: each.at):
        if message.at <= 2.5:
            send(receiver, message)
    while receiver.poll(ns(2.5)) is not None:
        pass
    assert receiver.poll(ns(2.649)) is None
    result = receiver.poll(ns(2.65))
    assert isinstance(result, Skip)
    assert (result.reason.value, result.t0_ns) == ("camera_gap", ns(2.5))
    assert receiver.poll(ns(2.65)) is None


def test_a_bag_played_with_old_stamps_is_stale_and_not_silent() -> None:
    decided = run(builder(*RIG), [replace(m, at=m.at + 1000) for m in GOOD])
    assert not observations(decided)
    assert skips(decided)[-1].reason.value == "camera_stale"


def test_a_wrong_camera_name_says_which_there_are() -> None:
    with pytest.raises(Exception, match=r"'rear'.*wide, left"):
        builder(*RIG).add_frame("rear", ns(0), b"", "jpeg", now_ns=ns(0))


def test_a_position_beyond_the_earth_is_bad_odometry() -> None:
    far = np.array([1e17, 0.0, 0.0])
    messages = [replace(m, pose=m.pose and replace(m.pose, position=far)) for m in GOOD]
    seen = asked(builder(*RIG), messages, 2.95)
    assert isinstance(seen, Skip)
    assert seen.reason is SkipReason.BAD_ODOMETRY
    assert "position is 1e+17 m from the origin" in str(seen.numbers)
