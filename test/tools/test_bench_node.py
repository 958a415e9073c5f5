"""What the node's benchmark counts: ticks once, and only while it counts."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from alpamayo_ros.tools.bench_node import main
from alpamayo_ros.tools.tick_figures import Observed, status_line


def status(t0: float, *, ok: bool = True, dropped: int = 0) -> Any:
    seconds = int(t0)
    return SimpleNamespace(
        header=SimpleNamespace(stamp=SimpleNamespace(sec=seconds, nanosec=round((t0 - seconds) * 1e9))),
        ok=ok,
        lifecycle_state="active",
        engine="null",
        stages=["wait", "assemble", "predict", "publish"],
        stage_ms=[0.0, 0.5, 30.0, 2.0],
        age_at_publication=0.05,
        effective_rate=10.0,
        skip_reasons=["camera_gap"],
        skip_counts=[3],
        ticks_published=1,
        ticks_skipped=3,
        ticks_dropped=dropped,
        gpu_memory_bytes=0,
    )


def test_a_tick_counts_once_and_the_hourglass_must_run() -> None:
    observed = Observed()
    assert not observed.take(status(1.0, dropped=2), counting=False)
    assert observed.take(status(1.1, dropped=2), counting=True)
    assert not observed.take(status(1.1, dropped=2), counting=True)  # repeated at 1 Hz
    assert not observed.take(status(1.2, ok=False, dropped=3), counting=True)
    assert observed.take(status(1.3, dropped=4), counting=True)
    assert observed.ticks == 2
    assert observed.stages["predict"] == [30.0, 30.0]
    assert observed.ages == [50.0, 50.0]
    assert observed.dropped == (2, 4)
    assert observed.skipped == {"camera_gap": 3}


def test_a_status_is_a_line_of_json() -> None:
    line = json.loads(status_line(status(12.3)))
    assert line["t0_s"] == 12.3
    assert line["stages_ms"] == {"wait": 0.0, "assemble": 0.5, "predict": 30.0, "publish": 2.0}
    assert line["age_ms"] == 50.0
    assert "changed" not in line
    assert json.loads(status_line(status(12.3), "sampling.seed:=3"))["changed"] == "sampling.seed:=3"


def test_what_is_counted_anew_leaves_out_the_tick_before() -> None:
    before = Observed()
    before.take(status(1.0, dropped=2), counting=True)
    observed = before.anew()
    assert not observed.take(status(1.0, dropped=2), counting=True)
    assert observed.take(status(1.2, dropped=5), counting=True)
    assert (observed.ticks, observed.dropped, observed.stages["publish"]) == (1, (2, 5), [2.0])


def test_a_node_that_cannot_start_is_quoted_at_once(ros_domain: int, capfd: pytest.CaptureFixture[str]) -> None:
    parameters = ["-p", "engine.kind:=transformers", "-p", "engine.checkpoint:=/no/such/folder"]
    assert main(["--seconds", "1", "--start", "60", "--", *parameters]) == 1
    assert "/no/such/folder is no folder" in capfd.readouterr().err
