"""Scenarios for the simulator, written as a user writes them: lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from alpamayo_ros.evaluation.scenario import parse_scenario
from alpamayo_ros.evaluation.simulation import simulate

Event = dict[str, Any]
START = 1000.0  # s: a stamp of 0 means that there is none


def config(*cameras: str, **parameters: Any) -> Event:
    """Cameras by name, "[tele]" an optional one; the first leads. Dots in names of parameters are written as "__"."""
    given = {name.strip("[]"): {"index": i, "required": name[0] != "["} for i, name in enumerate(cameras)}
    named = {name.replace("__", "."): value for name, value in parameters.items()}
    return {"type": "config", "cameras": given, "anchor": cameras[0], **named}


def frames(camera: str, hz: float, seconds: float = 3.0, begin: float = START, lag: float = 0.01) -> list[Event]:
    """A steady camera: each frame arrives `lag` s after its stamp."""
    stamps = [begin + k / hz for k in range(round(seconds * hz))]
    return [{"at": s + lag, "type": "frame", "camera": camera, "stamp": s} for s in stamps]


def odometry(
    hz: float = 50.0, seconds: float = 3.0, begin: float = START, speed: float = 10.0, lag: float = 0.002
) -> list[Event]:
    """Straight ahead along x, which is 0 at START."""
    stamps = [begin + k / hz for k in range(round(seconds * hz))]
    return [
        {
            "at": s + lag,
            "type": "odometry",
            "stamp": s,
            "position": [speed * (s - START), 0, 0],
            "orientation": [0, 0, 0, 1],
            "twist": [speed, 0, 0, 0, 0, 0],
        }
        for s in stamps
    ]


def ticks(hz: float = 10.0, seconds: float = 3.0, begin: float = START + 0.05) -> list[Event]:
    """Asked at a steady rate."""
    return [{"at": begin + k / hz, "type": "tick"} for k in range(round(seconds * hz))]


def shifted(events: Iterable[Event], seconds: float) -> list[Event]:
    """The same later."""
    times = ("at", "stamp", "now")
    return [{name: v + seconds if name in times else v for name, v in event.items()} for event in events]


def arriving(events: Iterable[Event]) -> list[Event]:
    """In order of arrival."""
    return sorted(events, key=lambda event: event["at"])


def with_stamps(events: Iterable[Event], stamp: Callable[[Event], float]) -> list[Event]:
    """With other stamps."""
    return [{**event, "stamp": stamp(event)} if "stamp" in event else event for event in events]


def write(lines: Iterable[Event]) -> list[bytes]:
    """Lines of a file."""
    return [json.dumps(line).encode() for line in lines]


def run(configuration: Event, events: Iterable[Event], *, explain: bool = False) -> list[dict[str, Any]]:
    """A line per tick. After every one nothing is lost in the books."""
    printed = list(simulate(parse_scenario(write([configuration, *events])), explain=explain))
    for line in printed:
        for name, counts in line["counts"].items():
            accounted = counts["used"] + counts["waiting"] + sum(counts["dropped"].values())
            assert counts["received"] == accounted, f"{name} at {line['at']}: {counts}"
    return printed


def ok(printed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Only the ticks that could be."""
    return [line for line in printed if line["ok"]]


def steps(stamps: Iterable[float]) -> list[float]:
    """From each to the next, s."""
    return [round(b - a, 6) for a, b in pairwise(stamps)]
