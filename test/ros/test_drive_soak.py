"""5,000 ticks with faults and jumps of the clock, in virtual time: what the process uses stays flat."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from ride import Event, Ride
from scenarios import START, frames, odometry

from alpamayo_ros.core.types import Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.tools.soak.samples import Bound, Sample, growth, leaks, take_sample

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


def test_5000_ticks_are_flat() -> None:
    ride = Ride("wide", "left")
    samples = list(drive(ride, 25))
    ride.close()
    assert leaks(samples, BOUNDS) == []


class Leaky(NullEngine):
    """Keeps two kilobytes of every tick."""

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        self.kept = [*getattr(self, "kept", []), bytearray(b"\xff" * 2000)]
        return super().predict(observation, options)


def test_two_kilobytes_per_tick_are_found() -> None:
    ride = Ride("wide", "left", engine=Leaky())
    samples = list(drive(ride, 10))
    ride.close()
    assert growth(samples, "rss_mb") == pytest.approx(2000 * 7 * 185 / 2**20, rel=0.4)
    (leak,) = leaks(samples, BOUNDS)
    assert leak.startswith("rss_mb grows")
