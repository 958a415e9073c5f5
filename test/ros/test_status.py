"""The reason for a skip is one word, in status, diagnostics and log alike; what is wrong has its level."""

from dataclasses import replace

import pytest

from alpamayo_ros.core.types import Skip, SkipReason
from alpamayo_ros.engine.null_engine import INFO
from alpamayo_ros.ros.diagnostics import ERROR, OK, WARN, diagnostics_message
from alpamayo_ros.ros.report import CameraReport, NodeReport, OdometryReport, TickReport
from alpamayo_ros.ros.status import status_message

CAMERA = CameraReport("front_wide", 1, "/front", required=True, received=10, age=0.05, rate=10.0)
HEALTHY = NodeReport(
    name="/alpamayo",
    now_ns=1_700_000_000_000_000_000,
    lifecycle_state="active",
    engine=replace(INFO, trained=True),
    engine_ready=True,
    engine_state="ready",
    engine_failed=False,
    engine_restarts=0,
    engine_pid=0,
    sim_time=False,
    clock_stopped_for=0.0,
    clock_jumps=0,
    rate_hz=10.0,
    max_input_age=0.5,
    max_odometry_age=0.4,
    max_result_age=1.0,
    epoch=0,
    enabled=True,
    gpu_memory_bytes=0,
    navigation="",
    navigation_age=float("nan"),
    cameras=(CAMERA,),
    odometry=OdometryReport("/odometry", age=0.01, received=50),
    tick=TickReport(t0_ns=1_700_000_000_000_000_000, ok=True),
)


def diagnostics(report):
    return {status.name.removeprefix("alpamayo: "): status for status in diagnostics_message(report).status}


def test_of_a_healthy_node_everything_is_ok():
    assert {status.level for status in diagnostics(HEALTHY).values()} == {OK}
    status = status_message(HEALTHY)
    assert (status.ok, status.skip_reason, status.detail) == (True, "", "")


@pytest.mark.parametrize("reason", list(SkipReason), ids=str)
def test_a_reason_has_one_name(reason):
    skip = Skip(reason, HEALTHY.now_ns, {reason.value: {"number": 1.5}})
    report = replace(HEALTHY, tick=TickReport(t0_ns=HEALTHY.now_ns, skip=skip, skip_counts={reason.value: 3}))
    status = status_message(report)
    assert (status.ok, status.skip_reason, status.skip_reasons) == (False, reason.value, [reason.value])
    assert '"number": 1.5' in status.detail
    timing = diagnostics(report)["timing"]
    assert (timing.level, timing.message) == (WARN, f"{reason.value}: number=1.5")
    assert skip.describe().startswith(reason.value), "the words of the log"


def test_an_engine_slower_than_the_rate_is_said_with_what_it_takes():
    stages = {"wait": 60.0, "assemble": 0.5, "prefill": 70.0, "reasoning": 120.0, "publish": 1.0}
    slow = replace(HEALTHY, tick=TickReport(t0_ns=1, ok=True, stages_ms=stages, rate=5.04))
    timing = diagnostics(slow)["timing"]
    assert timing.level == WARN
    assert timing.message == ("5.0 of 10 ticks a second: the engine takes 190 ms for one, and the others are dropped")
    assert diagnostics(replace(slow, rate_hz=5.0))["timing"].level == OK  # as many as are asked for
    fast = replace(slow.tick, stages_ms={**stages, "reasoning": 10.0})
    assert diagnostics(replace(slow, tick=fast))["timing"].level == OK  # inputs come at that rate


@pytest.mark.parametrize(
    ("change", "name", "level", "words"),
    [
        ({"cameras": (replace(CAMERA, received=0),)}, "camera front_wide", ERROR, "waiting_for_camera"),
        ({"cameras": (replace(CAMERA, age=2.0),)}, "camera front_wide", ERROR, "camera_stale: newest frame is 2.00 s"),
        ({"cameras": (replace(CAMERA, age=2.0, required=False),)}, "camera front_wide", WARN, "camera_stale"),
        ({"odometry": OdometryReport("/odometry")}, "odometry", ERROR, "waiting_for_odometry: nothing on /odometry"),
        ({"odometry": OdometryReport("/odometry", age=1.0)}, "odometry", ERROR, "odometry_stale"),
        ({"sim_time": True, "clock_stopped_for": 3.0}, "clock", ERROR, "/clock has not moved for 3.0 s"),
        ({"tick": TickReport(busy_for=7.0)}, "engine", ERROR, "at one tick or question for 7.0 s"),
        ({"memory_warning": "device memory has grown"}, "engine", WARN, "device memory has grown"),
        ({"engine": INFO}, "engine", WARN, "untrained"),
        ({"engine": None, "engine_state": "no GPU", "engine_failed": True}, "engine", ERROR, "no GPU"),
        ({"engine_ready": False, "engine_state": "its process ended"}, "engine", ERROR, "its process ended"),
        ({"engine": None, "engine_state": "loading"}, "engine", WARN, "loading"),
        ({"output_faults": ("/rviz wants it latched",)}, "outputs", WARN, "latched"),
    ],
)
def test_what_is_wrong_is_said_where_it_belongs(change, name, level, words):
    status = diagnostics(replace(HEALTHY, **change))[name]
    assert status.level == level
    assert words in status.message
