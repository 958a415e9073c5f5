"""What a scenario's ticks give: the same frames, history and reasons as in the node, with books that add up."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scenarios import START, arriving, config, frames, odometry, ok, run, shifted, steps, ticks, with_stamps

from alpamayo_ros.core import observe
from alpamayo_ros.core.settings import parse_settings
from alpamayo_ros.evaluation import simulation
from alpamayo_ros.ros import drive as node_drive

WIDE = config("wide")
BOTH = config("wide", "left")
HISTORY = 1.5  # s


def driven(seconds: float = 3.0, hz: float = 10.0, **options: Any) -> list[dict[str, Any]]:
    return frames("wide", hz, seconds, **options) + odometry(seconds=seconds) + ticks(seconds=seconds)


def reasons(printed: list[dict[str, Any]]) -> set[str]:
    return {line["skip"] for line in printed if not line["ok"]}


def after(printed: list[dict[str, Any]], at: float) -> list[dict[str, Any]]:
    return [line for line in printed if line["at"] > at]


class TestTheLine:
    def test_a_tick_that_can_be(self) -> None:
        events = arriving(frames("left", 10, begin=START + 0.02) + driven())
        line = run(BOTH, [event for event in events if event["type"] != "tick" or event["at"] > START + 2.9])[0]
        assert list(line) == ["at", "t0", "ok", "skip", "frames", "ego_history", "counts"]
        assert (line["at"], line["t0"], line["ok"], line["skip"]) == (1002.95, 1002.9, True, None)
        assert line["frames"] == {
            "wide": [1002.6, 1002.7, 1002.8, 1002.9],
            "left": [1002.62, 1002.72, 1002.82, 1002.92],
        }
        assert line["ego_history"] == [[-1.0 * (15 - k), 0.0, 0.0, 0.0] for k in range(16)]
        assert line["counts"]["wide"] == {"received": 30, "used": 4, "waiting": 7, "dropped": {"unused": 19}}

    def test_a_tick_that_cannot(self) -> None:
        (line,) = run(WIDE, [{"at": START, "type": "tick"}])
        nothing = {"received": 0, "used": 0, "waiting": 0, "dropped": {}}
        assert line == {
            "at": START,
            "t0": None,
            "ok": False,
            "skip": "waiting_for_camera",
            "frames": {},
            "ego_history": [],
            "counts": {"wide": nothing, "odometry": nothing},
        }

    def test_its_reasons_with_their_numbers(self) -> None:
        (line,) = run(WIDE, [{"at": START, "type": "tick"}], explain=True)
        assert line["reasons"] == {"waiting_for_camera": {"cameras": ["wide"]}, "waiting_for_odometry": {}}

    def test_stamps_are_rounded_to_a_microsecond(self) -> None:
        events = with_stamps(arriving(driven()), lambda event: event["stamp"] + 0.0000004)
        for line in ok(run(WIDE, events)):
            assert all(stamp == round(stamp, 6) == round(stamp, 1) for stamp in line["frames"]["wide"])

    def test_the_history_of_a_left_turn(self) -> None:
        radius, speed = 20.0, 8.0
        turning = []
        for event in odometry():
            angle = speed * (event["stamp"] - START) / radius
            turning.append(
                {
                    **event,
                    "position": [radius * math.sin(angle), radius * (1 - math.cos(angle)), 0],
                    "orientation": [0, 0, math.sin(angle / 2), math.cos(angle / 2)],
                    "twist": [speed, 0, 0, 0, 0, speed / radius],
                }
            )
        line = ok(run(WIDE, arriving(frames("wide", 10) + turning + ticks())))[-1]
        angle = -speed * np.arange(1.5, -0.05, -0.1) / radius
        wanted = np.stack([radius * np.sin(angle), radius * (1 - np.cos(angle)), 0 * angle, angle], axis=-1)
        assert np.array(line["ego_history"]) == pytest.approx(wanted, abs=1e-6)

    def test_an_answer_changes_nothing_of_the_next(self) -> None:
        events = arriving(driven(hz=30))
        every = [line for line in run(WIDE, events) if round(line["at"] * 10) % 5 == 0]
        few = [event for event in events if event["type"] != "tick" or round(event["at"] * 10) % 5 == 0]
        wanted = [{**line, "counts": None} for line in run(WIDE, few)]
        assert [{**line, "counts": None} for line in every] == wanted
        assert len(wanted) > 5

    def test_used_are_the_frames_that_were_printed(self) -> None:
        printed = run(BOTH, arriving(driven(hz=30) + frames("left", 20)))
        for camera in ("wide", "left"):
            shown = {stamp for line in printed for stamp in line["frames"].get(camera, ())}
            assert printed[-1]["counts"][camera]["used"] == len(shown) > 15


class TestCameras:
    @pytest.mark.parametrize("hz", [10, 20, 30])
    def test_a_multiple_of_10_hz_gives_the_same_grid(self, hz: float) -> None:
        good = ok(run(WIDE, arriving(driven(hz=hz))))
        assert len(good) == 15
        assert [line["t0"] for line in good] == [round(START + HISTORY + k / 10, 6) for k in range(15)]
        assert all(steps(line["frames"]["wide"]) == [0.1, 0.1, 0.1] for line in good)

    @pytest.mark.parametrize("hz", [9.62, 12, 15])
    def test_another_rate_keeps_to_real_frames_0_1_s_apart_on_average(self, hz: float) -> None:
        printed = run(WIDE, arriving(driven(seconds=10, hz=hz)))
        sent = {round(START + k / hz, 6) for k in range(200)}
        good = ok(printed)
        assert len(good) >= 80
        assert all(set(line["frames"]["wide"]) <= sent for line in good)
        period = max(0.1, 1 / hz)
        spans = [line["t0"] - line["frames"]["wide"][0] for line in good]
        assert np.mean(spans) == pytest.approx(3 * period, rel=0.02)
        assert all(step >= min(1 / hz, 0.1) - 1e-5 for line in good for step in steps(line["frames"]["wide"]))

    def test_of_two_equally_near_frames_the_earlier(self) -> None:
        left = frames("left", 10, begin=START - 0.05)
        line = ok(run(BOTH, arriving(driven() + left)))[-1]
        assert [round(b - a, 6) for a, b in zip(line["frames"]["wide"], line["frames"]["left"], strict=True)] == [
            -0.05
        ] * 4

    def test_an_offset_beyond_the_tolerance_is_a_skew(self) -> None:
        printed = run(
            config("wide", "left", sync_tolerance=0.03), arriving(driven() + frames("left", 10, begin=START + 0.04))
        )
        assert not ok(printed)
        assert printed[-1]["skip"] == "camera_skew"

    def test_a_time_offset_brings_a_camera_in_line(self) -> None:
        left = with_stamps(frames("left", 10), lambda event: event["stamp"] - 5.0)
        offset = {**BOTH, "cameras": {"wide": {"index": 0}, "left": {"index": 1, "time_offset": 5.0}}}
        line = ok(run(offset, arriving(driven() + left)))[-1]
        assert line["frames"]["left"] == line["frames"]["wide"]
        assert reasons(run(BOTH, arriving(driven() + left))) == {"camera_stale"}

    def test_a_required_camera_is_waited_for_and_an_optional_one_left_out(self) -> None:
        assert reasons(run(BOTH, arriving(driven()))) == {"waiting_for_camera"}
        good = ok(run(config("wide", "[left]"), arriving(driven())))
        assert len(good) == 15
        assert all(list(line["frames"]) == ["wide"] for line in good)

    def test_a_camera_that_stops_is_a_gap_and_then_stale(self) -> None:
        printed = run(BOTH, arriving(driven(seconds=4) + frames("left", 10, seconds=2)))
        assert [line["skip"] for line in after(printed, START + 2.2)][:2] == ["camera_gap", "camera_gap"]
        assert printed[-1]["skip"] == "camera_stale"

    def test_a_lost_anchor_frame_costs_four_ticks(self) -> None:
        sent = [event for event in driven() if event.get("camera") is None or event["stamp"] != START + 2]
        t0s = {line["t0"] for line in ok(run(WIDE, arriving(sent)))}
        lost = {round(START + HISTORY + k / 10, 6) for k in range(15)} - t0s
        assert lost == {1002.0, 1002.1, 1002.2, 1002.3}

    def test_messages_shuffled_within_0_1_s_give_the_same_frames_and_history(self) -> None:
        events = driven() + frames("left", 10, begin=START + 0.02)
        wanted = {line["t0"]: (line["frames"], line["ego_history"]) for line in ok(run(BOTH, arriving(events)))}
        rng = random.Random(0)
        for _ in range(5):
            late = [{**event, "at": event["at"] + rng.random() * 0.1} for event in events]
            got = {line["t0"]: (line["frames"], line["ego_history"]) for line in ok(run(BOTH, arriving(late)))}
            assert len(got) > 8
            assert got.items() <= wanted.items()

    def test_bad_stamps_and_duplicates_are_refused_by_name_and_the_good_ones_used(self) -> None:
        zero = with_stamps(frames("left", 10, lag=0.03), lambda _: 0.0)
        ahead = with_stamps(frames("left", 10, lag=0.04), lambda event: event["stamp"] + 1.0)
        good = frames("left", 10)
        printed = run(BOTH, arriving(driven() + good + good + zero + ahead))
        assert len(ok(printed)) == 15
        dropped = printed[-1]["counts"]["left"]["dropped"]
        assert (dropped["zero_stamp"], dropped["stamp_in_future"], dropped["duplicate"]) == (30, 30, 30)
        for events, reason in ((zero, "zero_stamp"), (ahead, "stamp_in_future")):
            assert run(BOTH, arriving(driven() + events))[-1]["skip"] == reason

    def test_a_frame_10_s_late_is_dropped_and_counted(self) -> None:
        late = {"at": START + 12, "type": "frame", "camera": "wide", "stamp": START + 1.987}
        printed = run(WIDE, arriving([*driven(seconds=14), late]))
        assert printed[-1]["counts"]["wide"]["dropped"]["late"] == 1
        assert all(line["ok"] for line in after(printed, START + 1.6))

    def test_a_changed_size_is_a_bad_image(self) -> None:
        sized = [
            {**event, "height": 48, "width": 64 if event["stamp"] < START + 2 else 32} for event in frames("wide", 10)
        ]
        printed = run(WIDE, arriving(sized + odometry() + ticks()))
        assert reasons(after(printed, START + 1.6)) == {"bad_image"}
        assert {1002.0, 1002.1, 1002.2}.isdisjoint(line["t0"] for line in ok(printed))
        assert printed[-1]["ok"]

    def test_20_percent_of_frames_lost_still_drives_and_adds_up(self) -> None:
        rng = random.Random(1)
        kept = [
            e for e in driven(seconds=20, hz=30) + frames("left", 30, 20) if e["type"] != "frame" or rng.random() > 0.2
        ]
        printed = run(BOTH, arriving(kept))
        assert len(ok(printed)) > 150


class TestOdometry:
    def test_without_a_twist(self) -> None:
        bare = [{name: value for name, value in e.items() if name != "twist"} for e in odometry()]
        assert len(ok(run(WIDE, arriving(frames("wide", 10) + bare + ticks())))) == 15

    def test_a_gap_ends_when_the_history_is_past_it(self) -> None:
        kept = [e for e in odometry(seconds=5) if not START + 1.8 < e["stamp"] < START + 2.2 - 1e-6]
        printed = run(WIDE, arriving(frames("wide", 10, 5) + kept + ticks(seconds=5)))
        assert reasons(after(printed, START + 1.6)) == {"odometry_gap"}
        resumed = next(line for line in ok(printed) if line["t0"] > START + 1.8)
        assert resumed["t0"] == round(START + 2.2 + HISTORY, 6)

    def test_poses_are_interpolated_at_t0_whatever_their_phase(self) -> None:
        line = ok(run(WIDE, arriving(frames("wide", 10) + odometry(begin=START + 0.013) + ticks())))[-1]
        assert np.array(line["ego_history"])[:, 0] == pytest.approx(np.arange(-15, 1.0), abs=1e-6)

    def test_what_cannot_be_used_is_named(self) -> None:
        for changes in ({"position": [math.nan, 0, 0]}, {"orientation": [0, 0, 0, 0]}):
            bad = [{**event, **changes} for event in odometry()]
            printed = run(WIDE, arriving(frames("wide", 10) + bad + ticks()))
            assert printed[-1]["skip"] == "bad_odometry"
            assert printed[-1]["counts"]["odometry"]["dropped"] == {"bad_odometry": 148}

    def test_a_jump_of_the_pose_drops_the_history_before_it(self) -> None:
        moved = [
            {**e, "position": [e["position"][0], 50 if e["stamp"] >= START + 2 else 0, 0]} for e in odometry(seconds=5)
        ]
        printed = run(WIDE, arriving(frames("wide", 10, 5) + moved + ticks(seconds=5)))
        assert "odometry_jump" in reasons(after(printed, START + 1.6))
        assert printed[-1]["ok"]

    def test_standing_still_needs_no_full_history(self) -> None:
        still = arriving(frames("wide", 10, 1) + odometry(seconds=1, speed=0) + ticks(seconds=1))
        good = ok(run(WIDE, still))
        assert good[0]["t0"] == START + 0.3
        assert good[0]["ego_history"] == [[0.0] * 4] * 16
        assert not ok(run(config("wide", standstill_padding=False), still))

    def test_a_changed_frame_is_a_reset(self) -> None:
        renamed = [{**e, "frame_id": "odom" if e["stamp"] < START + 2 else "map"} for e in odometry(seconds=5)]
        printed = run(WIDE, arriving(frames("wide", 10, 5) + renamed + ticks(seconds=5)))
        assert printed[-1]["counts"]["odometry"]["dropped"]["reset"] > 0
        assert printed[-1]["ok"]

    def test_the_mounting_of_the_odometrys_frame(self) -> None:
        # base_link is 2 m behind the odometry's frame, which turns left on the spot: base_link swings around it
        turning = []
        for event in odometry(speed=0):
            yaw = 0.2 * (event["stamp"] - START)
            turning.append(
                {**event, "orientation": [0, 0, math.sin(yaw / 2), math.cos(yaw / 2)], "twist": [0] * 5 + [0.2]}
            )
        mounted = config("wide", odometry__child_to_base=[-2.0, 0, 0, 0, 0, 0])
        line = ok(run(mounted, arriving(frames("wide", 10) + turning + ticks())))[-1]
        x, y, _, yaw = line["ego_history"][0]
        assert yaw == pytest.approx(-0.3)
        assert (x, y) == pytest.approx((2 - 2 * math.cos(0.3), 2 * math.sin(0.3)), abs=1e-6)


class TestTheClock:
    """A drive of 5 s; then the clock jumps, and the vehicle drives on with stamps of the new time."""

    @pytest.mark.parametrize("by", [-3.0, 45.0, -900.0])
    @pytest.mark.parametrize("at_goes_on", [True, False])
    def test_after_a_jump_it_drives_again_within_one_history(self, by: float, at_goes_on: bool) -> None:
        jump = {"at": START + 5, "type": "clock", "now": START + 5 + by}
        second = shifted(arriving(driven()), 5 + by)
        for event in second:
            if event["type"] == "odometry":
                event["position"] = [10 * (event["stamp"] - START), 0, 0]
            if at_goes_on:
                event["at"] -= by
        printed = run(WIDE, [*arriving(driven(seconds=5)), jump, *second])
        before, later = printed[:50], printed[50:]
        assert len(ok(before)) == 35
        assert [line["skip"] for line in later] == ["time_jump"] * 15 + [None] * 15
        assert later[15]["t0"] == pytest.approx(START + 5 + by + HISTORY)
        assert printed[-1]["counts"]["odometry"]["dropped"]["time_jump"] > 0

    def test_steady_clock_messages_change_nothing(self) -> None:
        clock = [{"at": START + k / 40, "type": "clock", "now": START + k / 40} for k in range(120)]
        assert run(WIDE, arriving(driven() + clock)) == run(WIDE, arriving(driven()))

    def test_the_first_clock_message_starts_simulated_time(self) -> None:
        before = [{"at": 0.1, "type": "tick"}, {"at": 0.5, "type": "clock", "now": START}]
        drive = [{**event, "at": event["at"] - START + 0.5} for event in arriving(driven())]
        printed = run(WIDE, before + drive)
        assert [line["skip"] for line in printed] == ["waiting_for_camera"] + ["time_jump"] * 15 + [None] * 15

    def test_a_clock_that_stops_is_named_and_one_that_goes_on_drives_again(self) -> None:
        clock = [{"at": START + k / 40, "type": "clock", "now": START + k / 40} for k in range(320)]
        heard = [event for event in clock if not START + 2 < event["at"] < START + 5]
        printed = run(WIDE, arriving(driven(seconds=8) + heard))
        stopped = [line["at"] for line in printed if line["skip"] == "clock_stopped"]
        assert (min(stopped), max(stopped)) == (START + 4.05, START + 4.95)
        assert all(line["ok"] for line in after(printed, START + 5 + HISTORY + 0.1))

    def test_a_small_step_is_no_jump(self) -> None:
        step = {"at": START + 3, "type": "clock", "now": START + 3.05}
        printed = run(WIDE, arriving([*driven(seconds=5), step]))
        assert all(line["ok"] for line in after(printed, START + 1.6))

    def test_a_wall_clock_set_back(self) -> None:
        printed = run(WIDE, arriving(driven(seconds=5)) + arriving(driven(seconds=3)))
        assert [line["skip"] for line in printed[50:]] == ["time_jump"] * 15 + [None] * 15

    def test_a_bag_that_loops_without_a_clock_moves_the_stamps_alone(self) -> None:
        patient = config("wide", max_input_age=30, max_odometry_age=30)
        again = [{**event, "at": event["at"] + 5} for event in arriving(driven(seconds=5))]
        printed = run(patient, arriving(driven(seconds=5)) + again)
        assert "time_jump" in reasons(printed[50:])
        assert all(line["ok"] for line in after(printed, START + 5 + HISTORY + 0.3))


class TestTheSameAsTheNode:
    def test_one_function_makes_both_builders(self) -> None:
        assert simulation.build_observation_builder is observe.build_observation_builder
        assert node_drive.build_observation_builder is observe.build_observation_builder

    def test_the_builder_comes_from_it_with_the_scenarios_configuration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made = []

        def build(given: observe.BuilderConfig) -> observe.ObservationBuilder:
            made.append(given)
            return observe.build_observation_builder(given)

        monkeypatch.setattr(simulation, "build_observation_builder", build)
        run({"type": "config", "cameras": {"front_wide": {}}, "wait_timeout": 0.2}, [{"at": 1, "type": "tick"}])
        flat = {"cameras.front_wide.topic": "/front", "wait_timeout": 0.2}
        assert made == [parse_settings(flat).builder_config()]


def test_whatever_comes_in_whatever_order_the_books_add_up() -> None:
    rng = random.Random(7)
    for _ in range(20):
        events: list[dict[str, Any]] = []
        for at, _ in pairwise(START + k * 0.02 for k in range(200)):
            stamp = at + rng.choice([0, 0, 0, -0.05, -0.3, -2, 1, -at])
            kind = rng.choice(["frame", "frame", "odometry", "odometry", "tick", "clock"])
            if kind == "frame":
                events.append({"at": at, "type": kind, "camera": rng.choice(["wide", "left"]), "stamp": stamp})
            elif kind == "odometry":
                position = [rng.choice([0.0, math.nan, 100.0]), 0, 0]
                events.append(
                    {"at": at, "type": kind, "stamp": stamp, "position": position, "orientation": [0, 0, 0, 1]}
                )
            elif kind == "clock" and rng.random() < 0.1:
                events.append({"at": at, "type": kind, "now": at + rng.choice([-3, 0, 0.5, 3])})
            else:
                events.append({"at": at, "type": "tick"})
        run(BOTH, events)  # asserts it at every tick
