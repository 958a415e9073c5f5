"""5,000 ticks with faults and jumps of the clock, in virtual time: what the process uses stays flat.

The drive runs in a process of its own: in one that has run other tests, a leak hides in memory that they have left.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from ride import Event, Ride
from scenarios import START, frames, odometry

from alpamayo_ros.core.types import Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.tools.soak.samples import Bound, Sample, growth, leaks, take_sample

ROOT = Path(__file__).parents[2]
LOOP = 20.0  # s
FAULT = (START + 6, START + 8)
BOUNDS = (Bound("rss_mb", 1.0), Bound("handles", 1.0), Bound("threads", 1.0))


def loop(number: int) -> list[Event]:
    """Another fault every time, and at the end the clock jumps back."""
    events = frames("wide", 10, LOOP) + frames("left", 10, LOOP) + odometry(hz=20, seconds=LOOP)
    faults = [
        lambda e: e,
        lambda e: {**e, "stamp": 0},
        lambda e: {**e, "stamp": e["stamp"] + 30},
        lambda e: {**e, "position": [float("nan")] * 3} if e["type"] == "odometry" else e,
        lambda e: {**e, "at": e["at"] + 3},
    ]
    fault = faults[number % len(faults)]
    events = [fault(event) if FAULT[0] <= event["stamp"] < FAULT[1] else event for event in events]
    back = {"at": START - 0.001, "type": "clock", "now": START - 0.001}
    return [{**event, "at": event["at"] + number * LOOP} for event in (back, *events)]


def drive(ride: Ride, loops: int) -> Iterator[Sample]:
    for number in range(loops):
        ride.play(loop(number))
        assert len(ride.published) > 100
        ride.published.clear()
        ride.skips.clear()
        gc.collect()
        yield take_sample(os.getpid(), (number + 1) * 200, 0.0)


class Leaky(NullEngine):
    """Keeps some bytes of every tick."""

    def __init__(self, leak: int) -> None:
        super().__init__()
        self._leak = leak
        self._kept: list[bytearray] = []

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        self._kept.append(bytearray(b"\xff" * self._leak))
        return super().predict(observation, options)


def samples_of(loops: int, leak: int) -> list[Sample]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "test" / "support")))}
    command = [sys.executable, __file__, str(loops), str(leak)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=250, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    return [Sample(**json.loads(line)) for line in result.stdout.splitlines()]


def test_5000_ticks_are_flat() -> None:
    samples = samples_of(loops=25, leak=0)
    assert samples[-1].ticks == 5000
    assert leaks(samples, BOUNDS) == []


def test_two_kilobytes_per_tick_are_found() -> None:
    samples = samples_of(loops=10, leak=2000)
    assert growth(samples, "rss_mb") == pytest.approx(2000 * 7 * 185 / 2**20, rel=0.4)
    (leak,) = leaks(samples, BOUNDS)
    assert leak.startswith("rss_mb grows")


if __name__ == "__main__":
    ride = Ride("wide", "left", engine=Leaky(int(sys.argv[2])))
    for sample in drive(ride, int(sys.argv[1])):
        print(json.dumps(asdict(sample)))
    ride.close()
