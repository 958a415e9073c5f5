"""A drive in virtual time: events as a scenario has them go in, and what it publishes and says is kept. No ROS."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from alpamayo_ros.core.settings import parse_settings
from alpamayo_ros.core.types import EgoPose, Skip, SkipReason
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.job import Outcome
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros.drive import Drive, Sinks
from alpamayo_ros.ros.report import TickReport

Event = dict[str, Any]
SECOND = 1_000_000_000
POLL = 0.05  # s
HEARTBEAT = 1.0  # s


def ns(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * 1e6) * 1000


class Ride:
    """A Drive with its worker, a clock that stands at the time of the last event, and a poll every 50 ms of it.

    After every event the engine is waited for, and the books have to add up.

    Args:
        cameras: by name, "[tele]" an optional one; the first leads.
        engine: warmed up; the null engine by default.
        parameters: dots in their names are written as "__".
    """

    def __init__(self, *cameras: str, engine: Engine | None = None, **parameters: Any) -> None:
        flat: dict[str, Any] = {"anchor": cameras[0], "engine.kind": "null", "sampling.num_samples": 1}
        for index, camera in enumerate(cameras):
            name = camera.strip("[]")
            flat |= {f"cameras.{name}.topic": f"/{name}", f"cameras.{name}.index": index}
            flat[f"cameras.{name}.required"] = camera == name
        flat |= {name.replace("__", "."): value for name, value in parameters.items()}
        self.published: list[Outcome] = []
        self.skips: list[tuple[float, Skip]] = []  # when, and why
        self.overdue: list[Skip] = []
        self.tell: Callable[[TickReport], None] = lambda tick: None
        self.sent = dict.fromkeys([*(camera.strip("[]") for camera in cameras), "odometry"], 0)
        self.at = 0.0
        self._offset = 0.0  # of the clock to `at`
        self._clock_runs = True
        self._next_poll = self._next_heartbeat = -1.0
        self.settle: Callable[[], None] = self.wait_for_engine
        sinks = Sinks(self._publish, self._announce, self._tell, lambda: None, self.overdue.append)
        self.drive = Drive(parse_settings(flat), engine or NullEngine(), self.now_ns, sinks)
        self.drive.activate()

    def now_ns(self) -> int:
        """The node's clock."""
        return ns(self.at + self._offset) if self._clock_runs else ns(self._offset)

    def play(self, events: Iterable[Event]) -> None:
        """In order of arrival."""
        for event in sorted(events, key=lambda each: each["at"]):
            self._pass_time(event["at"])
            self.at = event["at"]
            self._take(event)
            self.settle()
            self.check_books()

    def check_books(self) -> None:
        """Received = used + waiting + dropped by reason, and received is what was sent."""
        for name, counts in self.drive.counts().items():
            assert counts.adds_up, f"{name} at {self.at}: {counts}"
            assert counts.received == self.sent[name], f"{name} at {self.at}: {counts}"

    def dropped(self, name: str) -> dict[str, int]:
        """Messages of an input by the reason they were dropped for."""
        return dict(self.drive.counts()[name].dropped)

    def t0s(self, since: float = 0.0) -> list[float]:
        """Of the published ticks, in s."""
        found = [round(outcome.observation.t0_ns / SECOND, 6) for outcome in self.published]
        return [t0 for t0 in found if t0 >= since]

    def reasons(self, since: float = 0.0, until: float = 1e9) -> set[str]:
        """Why ticks were skipped between these times of arrival."""
        return {skip.reason.value for at, skip in self.skips if since <= at <= until}

    def wait_for_engine(self) -> None:
        """Until it has nothing to do."""
        worker, end = self.drive._worker, time.monotonic() + 10
        while worker._job is not None or worker._present is not None:
            assert time.monotonic() < end, "the engine does not come to an end"
            time.sleep(0)

    def close(self) -> None:
        """End the worker's thread."""
        assert self.drive.stop(10)

    def _pass_time(self, until: float) -> None:
        if self._next_poll < 0:
            self._next_poll, self._next_heartbeat = until + POLL, until + HEARTBEAT
        while self._next_poll <= until:
            self.at, self._next_poll = self._next_poll, self._next_poll + POLL
            self.drive.poll()
            if self.at >= self._next_heartbeat:
                self._next_heartbeat += HEARTBEAT
                self.drive.heartbeat(self.now_ns(), clock_stopped_for=0.0 if self._clock_runs else 3.0)
            self.settle()

    def _take(self, event: Event) -> None:
        kind = event["type"]
        if kind == "frame":
            self.sent[event["camera"]] += 1
            names = ("height", "width", "step")
            image = {name: event[name] for name in names if name in event}
            data, encoding = event.get("data", b""), event.get("encoding", "jpeg")
            stamp_ns = ns(event["stamp"])
            self.drive.add_frame(event["camera"], {"stamp_ns": stamp_ns, "data": data, "encoding": encoding, **image})
        elif kind == "odometry":
            self.sent["odometry"] += 1
            frames = event.get("frame_id", "odom"), event.get("child_frame_id", "base_link")
            self.drive.add_pose(_pose(event), *frames)
        elif kind == "clock":
            now = event.get("now", self.now_ns() / SECOND)
            self._clock_runs = event.get("runs", True)
            self._offset = now - (self.at if self._clock_runs else 0.0)
            if "now" in event:
                self.drive.clock_jumped()
        else:
            raise AssertionError(event)

    def _publish(self, outcome: Outcome, frame_id: str) -> float:
        self.published.append(outcome)
        return (self.now_ns() - outcome.observation.t0_ns) / SECOND

    def _tell(self, tick: TickReport) -> None:
        self.tell(tick)

    def _announce(self, skip: Skip, in_a_row: int) -> None:
        assert skip.reason in SkipReason
        self.skips.append((self.at, skip))


def _pose(event: Event) -> EgoPose:
    twist: Sequence[float] | None = event.get("twist")
    linear, angular = (None, None) if twist is None else (np.array(twist[:3], float), np.array(twist[3:], float))
    return EgoPose(
        ns(event["stamp"]), np.array(event["position"], float), np.array(event["orientation"], float), linear, angular
    )
