"""What the node knows about itself at one moment: the source of both the status message and the diagnostics."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from alpamayo_ros.core.types import Skip
from alpamayo_ros.engine.base import EngineInfo

RATE_WINDOW = 5.0  # s over which rates are taken
OWN_STAGES = ("wait", "assemble", "publish")  # of a tick, the node's; the others are the engine's


@dataclass(frozen=True)
class CameraReport:
    """One camera, lately."""

    name: str
    index: int
    topic: str
    required: bool
    stamp_ns: int = 0  # of its newest frame; 0 when none has come
    offset: float = math.nan  # s, newest used frame minus the anchor's
    receive_lag: float = math.nan  # s, arrival minus stamp of the newest frame
    age: float = math.nan  # s, of the newest frame
    rate: float = 0.0  # Hz
    received: int = 0
    used: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # by reason
    faults: tuple[str, ...] = ()  # of its topic: wrong types, incompatible QoS
    warnings: tuple[str, ...] = ()  # several publishers


@dataclass(frozen=True)
class OdometryReport:
    """The odometry, lately."""

    topic: str
    age: float = math.nan  # s
    rate: float = 0.0  # Hz
    received: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # by reason
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # frames without a transform, a twist that contradicts the poses


@dataclass(frozen=True)
class TickReport:
    """The newest tick, and all of them counted."""

    t0_ns: int = 0  # 0 when there was none
    ok: bool = False
    skip: Skip | None = None
    stages_ms: Mapping[str, float] = field(default_factory=dict)
    age_at_publication: float = math.nan  # s
    rate: float = 0.0  # Hz of published trajectories
    published: int = 0
    skipped: int = 0
    replaced: int = 0
    skip_counts: Mapping[str, int] = field(default_factory=dict)
    busy_for: float = 0.0  # s that the engine has been at its present tick
    lost_to_questions: int = 0  # of the replaced ones, those that came while the engine answered a question

    @property
    def engine_ms(self) -> float:
        """What the engine took for it, ms; 0 when there was none."""
        return sum(ms for stage, ms in self.stages_ms.items() if stage not in OWN_STAGES)


@dataclass(frozen=True)
class NodeReport:
    """All of it."""

    name: str  # of the node, fully qualified
    now_ns: int  # by the node's clock
    lifecycle_state: str
    engine: EngineInfo | None
    engine_ready: bool  # False with an engine: its process is being started anew
    engine_state: str  # in words: what it is doing, or why it isn't there
    engine_failed: bool
    engine_restarts: int  # of its process
    engine_pid: int  # of its process; 0 when it has none of its own
    sim_time: bool
    clock_stopped_for: float  # s of steady time; 0 when it runs
    clock_jumps: int
    rate_hz: float  # ticks a second at most
    max_input_age: float  # s, what the ages are judged by
    max_odometry_age: float
    max_result_age: float
    epoch: int
    enabled: bool
    gpu_memory_bytes: int
    navigation: str
    navigation_age: float  # s
    cameras: tuple[CameraReport, ...]
    odometry: OdometryReport
    tick: TickReport
    output_faults: tuple[str, ...] = ()
    memory_warning: str = ""  # device memory that grows; "" when it doesn't


class Rate:
    """Events per second over the last few seconds, by a monotonic clock."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=1000)

    def count(self) -> None:
        """One event, now."""
        self._times.append(time.monotonic())

    @property
    def hz(self) -> float:
        """Events per second."""
        since = time.monotonic() - RATE_WINDOW
        recent = [each for each in tuple(self._times) if each > since]
        if len(recent) < 2:
            return 0.0
        # a stream that stopped fades out instead of keeping its rate
        return (len(recent) - 1) / max(recent[-1] - recent[0], time.monotonic() - recent[0] - 1.0)


class Tally:
    """Counts ticks. Used under the drive's lock."""

    def __init__(self) -> None:
        self.report = TickReport()
        self.skips_in_a_row = 0
        self._counts: Counter[str] = Counter()
        self._rate = Rate()
        self._published = self._replaced = 0

    def published(self, t0_ns: int, stages_ms: Mapping[str, float], age: float) -> None:
        """A trajectory went out, `age` s after t0."""
        self._published += 1
        self._rate.count()
        self.skips_in_a_row = 0
        self.report = TickReport(t0_ns=t0_ns, ok=True, stages_ms=stages_ms, age_at_publication=age)

    def skipped(self, skip: Skip) -> None:
        """A tick gave none."""
        self._counts[skip.reason.value] += 1
        self.skips_in_a_row += 1
        self.report = TickReport(t0_ns=skip.t0_ns or 0, skip=skip)

    def replaced(self, skip: Skip) -> None:
        """An observation was replaced by a newer one, which is under way: that is no news about the newest tick."""
        self._replaced += 1
        self._counts[skip.reason.value] += 1

    def snapshot(self, busy_for: float, overdue: Skip | None, lost_to_questions: int) -> TickReport:
        """The newest tick with all counts; a tick that the engine is too long at is the newest."""
        newest = self.report if overdue is None else TickReport(t0_ns=overdue.t0_ns or 0, skip=overdue)
        return TickReport(
            t0_ns=newest.t0_ns,
            ok=newest.ok,
            skip=newest.skip,
            stages_ms=newest.stages_ms,
            age_at_publication=newest.age_at_publication,
            rate=self._rate.hz,
            published=self._published,
            skipped=sum(self._counts.values()) - self._replaced,
            replaced=self._replaced,
            skip_counts=dict(self._counts),
            busy_for=busy_for,
            lost_to_questions=lost_to_questions,
        )
