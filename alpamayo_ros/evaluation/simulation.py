"""Runs a scenario: the observation builder alone, asked at the scenario's ticks. No engine, no thread, no real time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from alpamayo_ros.core.accounting import StreamCounts
from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.observe import ObservationBuilder, build_observation_builder
from alpamayo_ros.core.types import Observation, Skip, SkipReason
from alpamayo_ros.evaluation.scenario import ClockEvent, Event, FrameEvent, OdometryEvent, Scenario, TickEvent

JUMP_NS = 1_000_000_000  # the node takes a larger step of its clock for a jump
STOPPED_NS = 2_000_000_000  # and simulated time that stands still for so long for stopped
STEADY_GAPS = 8  # so many in a row, none longer than STEADY_NS, and /clock is taken to go on like that
STEADY_NS = 1_000_000_000


class ScenarioClock:
    """The node's clock in a scenario.

    It is `at`, until a clock event sets it; from then on it goes on with `at` from there. After a clock event the
    times `at` may also be of the new time: then the first event after it lies nearer to `now` than to its `at`.

    Where clock events come steadily (nine in a row, none more than 1 s after the one before), they are taken for
    simulated time: between two of them the clock goes on for no longer than usual, and when they stop, it stops.
    """

    def __init__(self) -> None:
        self._offset_ns = 0  # the clock minus `at`
        self._set_at_ns: int | None = None  # `at` of the last clock event
        self._now_ns = 0  # and its time
        self._moved_at_ns = 0  # `at` of the last clock event that moved the clock
        self._undecided = False  # whether the `at` after the last clock event are still to be told from those before
        self._gaps_ns: list[int] = []
        self._last_at_ns: int | None = None

    def set(self, event: ClockEvent) -> bool:
        """A clock event; whether the clock jumps by it. The first event of a scenario is no jump."""
        expected_ns = None if self._last_at_ns is None else self.now_ns(event.at_ns)
        if self._set_at_ns is not None:
            self._gaps_ns = [*self._gaps_ns, event.at_ns - self._set_at_ns][-STEADY_GAPS:]
        if self._set_at_ns is None or event.now_ns != self._now_ns:
            self._moved_at_ns = event.at_ns
        self._set_at_ns, self._now_ns = event.at_ns, event.now_ns
        self._offset_ns = event.now_ns - event.at_ns
        self._undecided = True
        self._last_at_ns = event.at_ns
        return expected_ns is not None and abs(event.now_ns - expected_ns) > JUMP_NS

    def now_ns(self, at_ns: int) -> int:
        """The clock when an event arrives."""
        self._last_at_ns = at_ns
        if self._set_at_ns is None:
            return at_ns
        if self._undecided:
            self._undecided = False
            if abs(at_ns - self._now_ns) < abs(at_ns - self._set_at_ns):
                shift_ns = self._now_ns - self._set_at_ns  # `at` goes on in the new time
                self._set_at_ns, self._moved_at_ns = self._now_ns, self._moved_at_ns + shift_ns
                self._offset_ns = 0
        if self.is_steady:
            return self._now_ns + min(at_ns - self._set_at_ns, max(self._gaps_ns))
        return at_ns + self._offset_ns

    @property
    def is_steady(self) -> bool:
        """Whether clock events come like those of simulated time."""
        return len(self._gaps_ns) == STEADY_GAPS and all(0 < gap <= STEADY_NS for gap in self._gaps_ns)

    def stopped_ns(self, at_ns: int) -> int:
        """For how long simulated time has not moved; 0 unless that is too long."""
        still_ns = at_ns - self._moved_at_ns
        return still_ns if self.is_steady and still_ns > STOPPED_NS else 0


class Simulation:
    """A builder that is given a scenario's events by the same calls as by the node.

    That is `clock_jumped` for a clock event by which the clock jumps, and a block as `clock_stopped` while simulated
    time stands still.
    """

    def __init__(self, config: BuilderConfig) -> None:
        self.builder = build_observation_builder(config)
        self._clock = ScenarioClock()

    def take(self, event: Event) -> int:
        """An event arrives; the clock then, ns. A tick changes nothing."""
        builder = self.builder
        jumped = isinstance(event, ClockEvent) and self._clock.set(event)
        now_ns = event.now_ns if isinstance(event, ClockEvent) else self._clock.now_ns(event.at_ns)
        _tell_stopped(builder, self._clock.stopped_ns(event.at_ns))
        if jumped:
            builder.clock_jumped(now_ns)
        if isinstance(event, FrameEvent):
            height, width = event.height, event.width
            builder.add_frame(event.camera, event.stamp_ns, b"", "", now_ns=now_ns, height=height, width=width)
        elif isinstance(event, OdometryEvent):
            builder.add_pose(event.pose, frame_id=event.frame_id, child_frame_id=event.child_frame_id, now_ns=now_ns)
        return now_ns


def simulate(scenario: Scenario, explain: bool = False) -> Iterator[dict[str, Any]]:
    """What the builder answers at each tick, as JSON types; stamps in seconds, rounded to 1 us.

    A tick asks it to `observe`. Since nobody asks it to `poll`, the frames that count as used are those of the ticks
    that were asked for, and the rate limits nothing.

    Args:
        scenario: as parsed.
        explain: give the numbers of every reason that holds, too.
    """
    simulation = Simulation(scenario.config)
    for event in scenario.events:
        now_ns = simulation.take(event)
        if isinstance(event, TickEvent):
            yield _line(event, simulation.builder.observe(now_ns), simulation.builder, explain)


def with_ticks(config: BuilderConfig, events: Iterable[Event]) -> Iterator[Event]:
    """The events, and a tick after each by which the node would decide one: that gives a trajectory, or a skip."""
    simulation = Simulation(config)
    decided = False
    at_ns: int | None = None
    for event in events:
        yield event
        at_ns = event.at_ns
        if simulation.builder.poll(simulation.take(event)) is not None:
            decided = True
            yield TickEvent(at_ns)
    if not decided and at_ns is not None:
        yield TickEvent(at_ns)  # which says why there was none


def _tell_stopped(builder: ObservationBuilder, stopped_ns: int) -> None:
    if stopped_ns:
        builder.block(SkipReason.CLOCK_STOPPED, steady_s=round(stopped_ns * 1e-9, 1))
    else:
        builder.unblock(SkipReason.CLOCK_STOPPED)


def _line(event: TickEvent, answer: Observation | Skip, builder: ObservationBuilder, explain: bool) -> dict[str, Any]:
    is_skip = isinstance(answer, Skip)
    line: dict[str, Any] = {
        "at": _seconds(event.at_ns),
        "t0": None if answer.t0_ns is None else _seconds(answer.t0_ns),
        "ok": not is_skip,
        "skip": answer.reason.value if isinstance(answer, Skip) else None,
        "frames": {} if isinstance(answer, Skip) else _frames(answer, builder),
        "ego_history": [] if isinstance(answer, Skip) else _ego_history(answer),
        "counts": {name: _counts(counts) for name, counts in builder.counts().items()},
    }
    if explain:
        line["reasons"] = dict(answer.numbers) if isinstance(answer, Skip) else {}
    return line


def _frames(observation: Observation, builder: ObservationBuilder) -> dict[str, list[float]]:
    names = {camera.index: camera.name for camera in builder.config.cameras}
    return {
        names[index]: [_seconds(frame.stamp_ns) for frame in frames] for index, frames in observation.frames.items()
    }


def _ego_history(observation: Observation) -> list[list[float]]:
    """x, y, z (m) and yaw (rad) in ego, oldest first."""
    turned = observation.history_rotation
    return [
        [_rounded(value) for value in (*xyz, math.atan2(rotation[1, 0], rotation[0, 0]))]
        for xyz, rotation in zip(observation.history_xyz, turned, strict=True)
    ]


def _counts(counts: StreamCounts) -> dict[str, Any]:
    return {
        "received": counts.received,
        "used": counts.used,
        "waiting": counts.waiting,
        "dropped": dict(sorted(counts.dropped.items())),
    }


def _rounded(value: float) -> float:
    return round(float(value), 9) + 0.0  # no -0.0


def _seconds(stamp_ns: int) -> float:
    return round(stamp_ns / 1000) / 1e6
