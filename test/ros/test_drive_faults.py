"""Faults of the inputs, through everything between topics and topics: named, counted, and over within one history.

Every ride is the same: healthy inputs, faulty ones from FROM to TO, healthy ones again. After every message the books
of every input have to add up.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from drives import decode_all
from ride import Event, Ride
from scenarios import START, frames, odometry, shifted

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.transform_odometry import TransformOdometry
from alpamayo_ros.engine.null_engine import NullEngine

FROM, TO, END = START + 3, START + 5, START + 9
HISTORY = 1.5  # s
PICTURE = cv2.imencode(".jpg", np.full((18, 32, 3), 128, np.uint8))[1].tobytes()


def healthy(end: float = END) -> list[Event]:
    events = frames("wide", 10, end - START) + frames("left", 10, end - START) + odometry(seconds=end - START)
    return [{**event, "data": PICTURE} if event["type"] == "frame" else event for event in events]


def between(change: Callable[[Event], list[Event]], kind: str, camera: str = "left", end: float = END) -> list[Event]:
    """The ride with what is sent between FROM and TO changed: messages of that kind, frames of one camera only."""
    out: list[Event] = []
    for event in healthy(end):
        concerned = event["type"] == kind and FROM <= event["stamp"] < TO and event.get("camera", camera) == camera
        out += change(event) if concerned else [event]
    return out


@pytest.fixture
def ride() -> Iterator[Ride]:
    running = Ride("wide", "left", engine=NullEngine(before=decode_all))
    yield running
    running.close()


def check_named(ride: Ride, source: str, reasons: set[str], dropped: str) -> None:
    """Skipped for these reasons, the first of them among others, or not at all; and dropped for this one."""
    seen = ride.reasons(since=FROM)
    assert seen <= reasons
    assert bool(seen) == bool(reasons)
    if dropped:
        assert ride.dropped(source)[dropped] > 0


def check_recovery(ride: Ride, since: float = TO, end: float = END) -> None:
    """From one history length after the fault on every tick is published."""
    ticks = round((end - START) * 10)
    wanted = [START + k / 10 for k in range(ticks) if START + k / 10 > since + HISTORY + 0.05]
    assert len(wanted) > 15
    assert [t0 for t0 in ride.t0s(since=wanted[0] - 0.01) if t0 < end] == pytest.approx(wanted)


RNG = random.Random(1)
NAN = math.nan
FRAMES: dict[str, tuple[Callable[[Event], list[Event]], set[str], str]] = {
    # the fault, the reasons that may be given for it, and what the frames are dropped for ("": they aren't)
    "a fifth lost at random": (lambda e: [e] * (RNG.random() > 0.2), {"camera_gap"}, ""),
    "all lost": (lambda e: [], {"camera_gap", "camera_stale"}, ""),
    "reordered within 0.1 s": (lambda e: [{**e, "at": e["at"] + RNG.random() * 0.1}], set(), ""),
    "duplicated": (lambda e: [e, {**e, "at": e["at"] + 0.001}], set(), "duplicate"),
    "stamps 10 s behind": (
        lambda e: [{**e, "stamp": e["stamp"] - 10}],
        {"camera_gap", "time_jump", "camera_stale"},
        "late",
    ),
    "stamps 10 s ahead": (
        lambda e: [{**e, "stamp": e["stamp"] + 10}],
        {"camera_gap", "camera_stale", "stamp_in_future"},
        "stamp_in_future",
    ),
    "zero-stamped": (
        lambda e: [{**e, "stamp": 0}],
        {"camera_gap", "camera_stale", "zero_stamp"},
        "zero_stamp",
    ),
    "every second one zero-stamped": (
        lambda e: [{**e, "stamp": 0} if round(e["stamp"] * 10) % 2 else e],
        {"camera_gap", "zero_stamp"},
        "zero_stamp",
    ),
    "empty": (lambda e: [{**e, "data": b""}], {"bad_image", "camera_gap"}, "bad_image"),
    "truncated": (lambda e: [{**e, "data": PICTURE[:-9]}], {"bad_image", "camera_gap"}, "bad_image"),
    "garbage": (lambda e: [{**e, "data": RNG.randbytes(500)}], {"bad_image", "camera_gap"}, "bad_image"),
    "of an unknown raw encoding": (
        lambda e: [{**e, "encoding": "vendor_12p", "height": 18, "width": 32, "step": 48}],
        {"bad_image", "camera_gap"},
        "bad_image",
    ),
}


@pytest.mark.parametrize("fault", FRAMES)
@pytest.mark.parametrize("camera", ["wide", "left"], ids=["anchor", "other camera"])
def test_faulty_frames_are_named_and_cost_no_more_than_a_history(ride: Ride, fault: str, camera: str) -> None:
    change, allowed, dropped = FRAMES[fault]
    RNG.seed(1)
    ride.play(between(change, "frame", camera))
    check_named(ride, camera, allowed, dropped)
    check_recovery(ride)


def test_a_changed_size_is_named_while_both_sizes_are_among_the_four(ride: Ride) -> None:
    def raw(event: Event) -> Event:
        if event.get("camera") != "left":
            return event
        height, width = (36, 64) if FROM <= event["stamp"] < TO else (18, 32)
        picture = {"height": height, "width": width, "step": width, "data": bytes(height * width)}
        return {**event, "encoding": "mono8", **picture}

    ride.play(raw(event) for event in healthy())
    assert ride.reasons(since=FROM) == {"bad_image"}
    missed = {round(START + k / 10, 6) for k in range(15, 90)} - set(ride.t0s())
    assert missed == {1003.0, 1003.1, 1003.2, 1005.0, 1005.1, 1005.2}


AFTER_GAP = {"odometry_gap", "ego_history_short"}
ODOMETRY: dict[str, tuple[Callable[[Event], list[Event]], set[str], str]] = {
    "NaN position": (lambda e: [{**e, "position": [NAN, 0, 0]}], {"bad_odometry"} | AFTER_GAP, "bad_odometry"),
    "infinite twist": (lambda e: [{**e, "twist": [math.inf] * 6}], {"bad_odometry"} | AFTER_GAP, "bad_odometry"),
    "zero quaternion": (lambda e: [{**e, "orientation": [0, 0, 0, 0]}], {"bad_odometry"} | AFTER_GAP, "bad_odometry"),
    "lost": (lambda e: [], {"odometry_stale"} | AFTER_GAP, ""),
    "one in twenty": (lambda e: [e] * (round(e["stamp"] * 50) % 20 == 0), {"odometry_stale", "odometry_gap"}, ""),
    "lost at random": (lambda e: [e] * (RNG.random() > 0.2), set(), ""),
    "duplicated": (lambda e: [e, {**e, "at": e["at"] + 0.001}], set(), "duplicate"),
    "reordered within 0.1 s": (lambda e: [{**e, "at": e["at"] + RNG.random() * 0.1}], set(), ""),
    "zero-stamped": (lambda e: [{**e, "stamp": 0}], {"bad_odometry"} | AFTER_GAP, "zero_stamp"),
    "stamps 10 s ahead": (
        lambda e: [{**e, "stamp": e["stamp"] + 10}],
        {"bad_odometry"} | AFTER_GAP,
        "stamp_in_future",
    ),
    "moved by 50 m": (
        lambda e: [{**e, "position": [e["position"][0], 50, 0]}],
        {"odometry_jump", "ego_history_short"},
        "odometry_jump",
    ),
    "in another frame": (lambda e: [{**e, "frame_id": "map"}], {"camera_gap", "odometry_jump"}, "reset"),
    "of another child frame": (
        lambda e: [{**e, "child_frame_id": "gps"}],
        {"camera_gap", "odometry_jump"},
        "reset",
    ),
    "in one frame and another": (
        lambda e: [e, {**e, "at": e["at"] + 0.003, "stamp": e["stamp"] + 0.003, "frame_id": "map"}],
        {"odometry_jump", "camera_gap"},
        "reset",
    ),
    "of a second publisher": (
        lambda e: [e, {**e, "at": e["at"] + 0.003, "stamp": e["stamp"] + 0.003, "position": [0, 90, 0]}],
        {"odometry_jump", "ego_history_short"},
        "odometry_jump",
    ),
    "with quaternions of either sign": (
        lambda e: [{**e, "orientation": [-each for each in e["orientation"]]}] if RNG.random() < 0.5 else [e],
        set(),
        "",
    ),
    "a twist of 1e300": (lambda e: [{**e, "twist": [1e300] * 6}], {"bad_odometry"} | AFTER_GAP, "bad_odometry"),
    "a quaternion of length 1e200": (
        lambda e: [{**e, "orientation": [0, 0, 0, 1e200]}],
        {"bad_odometry"} | AFTER_GAP,
        "bad_odometry",
    ),
    "without a twist": (lambda e: [{name: v for name, v in e.items() if name != "twist"}], set(), ""),
    "a twist of zeros": (lambda e: [{**e, "twist": [0] * 6}], set(), ""),
    "with a twist in the world's frame": (
        lambda e: [{**e, "twist": [0, e["twist"][0], 0, 0, 0, 0]}],
        set(),
        "",
    ),
}


@pytest.mark.parametrize("fault", ODOMETRY)
def test_faulty_odometry_is_named_and_costs_no_more_than_a_history(ride: Ride, fault: str) -> None:
    change, allowed, dropped = ODOMETRY[fault]
    RNG.seed(1)
    ride.play(between(change, "odometry"))
    check_named(ride, "odometry", allowed, dropped)
    check_recovery(ride)


class TransformRide(Ride):
    """The poses come from /tf, ten times a second: one moving transform, to base_link."""

    def __init__(self) -> None:
        super().__init__("wide", "left", engine=NullEngine(before=decode_all), odometry__source="tf")
        self.transforms = TransformOdometry("odom", "base_link", ChildFrame(OdometrySettings(source="tf")))

    def _take(self, event: Event) -> None:
        if event["type"] != "odometry":
            super()._take(event)
            return
        (x, y, z), (qx, qy, qz, qw) = event["position"], event["orientation"]
        stamp = SimpleNamespace(sec=int(event["stamp"]), nanosec=round(event["stamp"] % 1 * 1e9))
        moved = SimpleNamespace(
            header=SimpleNamespace(frame_id="odom", stamp=stamp),
            child_frame_id="base_link",
            transform=SimpleNamespace(
                translation=SimpleNamespace(x=x, y=y, z=z), rotation=SimpleNamespace(x=qx, y=qy, z=qz, w=qw)
            ),
        )
        for pose in self.transforms.poses([moved]):
            self.sent["odometry"] += 1
            self.drive.add_pose(pose, "odom", self.transforms.child_label)


TRANSFORMS: dict[str, tuple[Callable[[Event], list[Event]], set[str], str]] = {
    "none": (lambda e: [e], set(), ""),
    "NaN position": (lambda e: [{**e, "position": [NAN, 0, 0]}], {"bad_odometry"} | AFTER_GAP, "bad_odometry"),
    "zero quaternion": (lambda e: [{**e, "orientation": [0, 0, 0, 0]}], {"bad_odometry"} | AFTER_GAP, "bad_odometry"),
    "lost": (lambda e: [], {"odometry_stale"} | AFTER_GAP, ""),
    "moved by 5 m to the side": (
        lambda e: [{**e, "position": [e["position"][0], 5, 0]}],
        {"odometry_jump", "ego_history_short"},
        "",
    ),
    "moved by 50 m, with a fifth lost": (
        lambda e: [{**e, "position": [e["position"][0] + 50, 0, 0]}] * (RNG.random() > 0.2),
        {"odometry_jump"} | AFTER_GAP,
        "",
    ),
    "away by 30 m once": (
        lambda e: [{**e, "position": [e["position"][0] + 30 * (abs(e["stamp"] - FROM - 1) < 0.01), 0, 0]}],
        {"odometry_jump", "ego_history_short"},
        "odometry_jump",
    ),
    "stamps 10 s ahead": (
        lambda e: [{**e, "stamp": e["stamp"] + 10}],
        {"bad_odometry"} | AFTER_GAP,
        "stamp_in_future",
    ),
}


@pytest.mark.parametrize("fault", TRANSFORMS)
def test_faulty_transforms_are_named_as_odometry_is_and_no_path_is_made_of_them(fault: str) -> None:
    change, allowed, dropped = TRANSFORMS[fault]
    RNG.seed(1)
    ride = TransformRide()
    messages = between(change, "odometry")
    ride.play(e for e in messages if e["type"] != "odometry" or round(e["at"] * 50) % 5 == 0)  # at 10 Hz
    check_named(ride, "odometry", allowed, dropped)
    check_recovery(ride)
    for outcome in ride.published:  # it drives straight on: no step of another length is in any history
        steps = np.linalg.norm(np.diff(outcome.observation.history_xyz, axis=0), axis=-1)
        assert steps == pytest.approx(steps.mean(), abs=0.05)
    ride.close()


@pytest.mark.parametrize(
    ("source", "reason"), [("wide", "camera_stale"), ("left", "camera_stale"), ("odometry", "odometry_stale")]
)
def test_what_comes_10_s_late_is_dropped_among_the_fresh(ride: Ride, source: str, reason: str) -> None:
    kind = source if source == "odometry" else "frame"
    end = START + 17
    ride.play(between(lambda e: [{**e, "at": e["at"] + 10}], kind, source, end))
    assert reason in ride.reasons(since=FROM, until=TO)
    assert ride.dropped(source)["late"] == (100 if source == "odometry" else 20)
    assert ride.reasons(since=TO + HISTORY + 0.2) == set()
    check_recovery(ride, end=end)


def test_a_stream_of_both_jumps_loses_the_epoch_once(ride: Ride) -> None:
    """A looped bag: stamps begin anew while the clock goes on, as they do without --clock."""
    length = 4.0
    first = [event for event in healthy() if event["at"] < START + length]
    again = [{**event, "stamp": event["stamp"] - length} for event in shifted(first, length)]
    patient = Ride("wide", "left", max_input_age=60.0, max_odometry_age=60.0, max_result_age=60.0)
    try:
        patient.play(first + again)
        assert "time_jump" in patient.reasons(since=START + length)
        resumed = min(at for at in patient.t0s() if patient.t0s().count(at) == 2)
        assert resumed <= START + HISTORY + 0.4  # three messages in a row show the jump
    finally:
        patient.close()


class TestTheClock:
    @pytest.mark.parametrize("by", [-20.0, -1.5, 2.0, 3600.0])
    def test_that_jumps_costs_one_history(self, ride: Ride, by: float) -> None:
        jump = {"at": FROM - 0.001, "type": "clock", "now": FROM + by}
        before = [event for event in healthy() if event["at"] < FROM]
        after = [
            {**event, "stamp": event["stamp"] + by}
            for event in healthy()
            if event["at"] >= FROM and event["stamp"] >= FROM
        ]
        ride.play([*before, jump, *after])
        assert ride.reasons(since=FROM) == {"time_jump"}
        t0s = ride.t0s()
        assert t0s[-1] == pytest.approx(START + 8.9 + by)
        recovered = [t0 for t0 in t0s if t0 > FROM + by + HISTORY and (by < 0 or t0 > FROM)]
        assert len(recovered) >= 43

    def test_that_jumps_both_ways_ends_where_it_began(self, ride: Ride) -> None:
        there = {"at": FROM - 0.001, "type": "clock", "now": FROM + 100}
        back = {"at": TO - 0.001, "type": "clock", "now": TO - 0.001}
        events = between(lambda e: [{**e, "stamp": e["stamp"] + 100}], "odometry")
        events = [
            {**e, "stamp": e["stamp"] + 100} if e["type"] == "frame" and FROM <= e["stamp"] < TO else e for e in events
        ]
        ride.play([*events, there, back])
        assert ride.reasons(since=FROM) == {"time_jump"}
        check_recovery(ride)

    def test_that_loops_five_times_resumes_every_time(self, ride: Ride) -> None:
        once = healthy()
        for number in range(5):
            before = len(ride.published)
            offset = number * (END - START)
            start = {"at": START + offset - 0.001, "type": "clock", "now": START - 0.001}
            ride.play([start, *({**event, "at": event["at"] + offset} for event in once)])
            assert len(ride.published) - before >= 74

    def test_that_stops_is_named_and_goes_on(self, ride: Ride) -> None:
        stopped = {"at": FROM, "type": "clock", "runs": False}
        goes_on = {"at": TO, "type": "clock", "runs": True}
        sent = [event for event in healthy() if not FROM < event["at"] < TO]
        later = [event for event in sent if event["at"] <= FROM]
        held = [{**e, "stamp": e["stamp"] - (TO - FROM)} for e in sent if e["at"] >= TO and e["stamp"] >= TO]
        ride.play([*later, stopped, goes_on, *held])
        assert "clock_stopped" in ride.reasons(since=FROM)
        assert ride.t0s()[-1] == pytest.approx(START + 8.9 - (TO - FROM))

    def test_that_goes_on_is_believed_before_the_next_heartbeat(self, ride: Ride) -> None:
        by = 2.5  # s that it stands still, to the middle between two heartbeats
        stopped, goes_on = ({"at": at, "type": "clock", "runs": at > FROM} for at in (FROM, FROM + by))
        before = [event for event in healthy() if event["at"] <= FROM]
        after = [{**event, "at": event["at"] + by} for event in healthy() if event["at"] > FROM]
        ride.play([*before, stopped, goes_on, *after])
        assert "clock_stopped" in ride.reasons(since=FROM)
        assert ride.reasons(since=FROM + by) == set()

    def test_that_starts_late_begins_then(self) -> None:
        ride = Ride("wide", "left")
        try:
            ride.play([{"at": START - 1, "type": "clock", "runs": False, "now": 0.0}])
            early = [event for event in healthy() if event["at"] < FROM]
            ride.play(early)
            assert "clock_stopped" in ride.reasons()
            assert ride.t0s() == []
            rest = [event for event in healthy() if event["at"] >= FROM and event["stamp"] >= FROM]
            ride.play([{"at": FROM, "type": "clock", "now": FROM}, *rest])
            assert ride.t0s()[0] <= FROM + HISTORY + 0.1
        finally:
            ride.close()
