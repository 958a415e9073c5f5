"""One camera as the builder sees it: its frames, its books, and what keeps it out of a tick."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alpamayo_ros.core.accounting import LATE, StreamCounts
from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
from alpamayo_ros.core.frames import CameraBuffer, Choice, sizes
from alpamayo_ros.core.lattice import Point
from alpamayo_ros.core.stream import Stream
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, STEP_NS, Frame, SkipReason

Numbers = Mapping[str, Any]
SKEW_SPREAD_NS = 20_000_000  # an offset that varies by less is constant


@dataclass(frozen=True)
class CameraState:
    """One camera, as of a time of the node's clock. NaN and 0 where nothing is known yet."""

    name: str
    index: int
    required: bool
    stamp_ns: int  # of its newest frame; 0 when none is held
    age: float  # s, of that frame
    offset: float  # s, its frame of the newest tick minus the anchor's; without a tick, by the receive lags
    receive_lag: float  # s from stamp to arrival, median of the last frames
    period: float  # s between its frames, the median of the last; NaN with fewer than two
    rate_hz: float  # by arrival; fades to 0 when it stops
    size: tuple[int, int]  # height, width of its newest frame, when the message says it
    bad_image: str  # why the last bad image of this epoch could not be decoded; ""
    counts: StreamCounts


@dataclass(frozen=True, eq=False)
class CameraFinding:
    """What one camera gives to a tick: four frames, or reasons."""

    frames: tuple[Frame, ...] = ()
    reasons: Mapping[SkipReason, Numbers] = field(default_factory=dict)


class CameraInput:
    """One camera. Times in ns of the node's clock."""

    def __init__(self, camera: CameraConfig, config: BuilderConfig) -> None:
        self.config = camera
        self.is_anchor = camera.name == config.anchor
        self.offset_ns = round(camera.time_offset * 1e9)
        self.stream = Stream(round(config.future_tolerance * 1e9))
        self.buffer = CameraBuffer(round(config.sync_tolerance * 1e9))
        self.bad_image = ""
        self.prepared_unused = 0
        self._limits = config
        self._max_age_ns = round(config.max_input_age * 1e9)
        self._prepared: set[int] = set()
        self._last_offset = math.nan

    def hold(self, frame: Frame, now_ns: int) -> bool:
        """Keep a frame; False when older ones fill the buffer."""
        self.stream.hold(frame.serial, frame.stamp_ns, now_ns)
        kept = True
        for gone in self.buffer.add(frame):
            kept = kept and gone is not frame
            self._let_go(gone, LATE if gone is frame else None)
        return kept

    def flush(self, reason: str) -> None:
        """Forget every frame; those never used count as dropped for this reason."""
        for frame in self.buffer.clear():
            self._let_go(frame, reason)
        self.stream.flush()
        self.bad_image = ""
        self._last_offset = math.nan

    def take_out(self, serial: int, message: str) -> Frame | None:
        """Take out a frame whose image turned out bad."""
        frame = self.buffer.take_out(serial)
        if frame is not None:
            self.bad_image = message
            self.stream.ledger.spoil(serial, SkipReason.BAD_IMAGE.value)
            self._prepared.discard(serial)
        return frame

    def use(self, frames: Iterable[Frame], t0_ns: int) -> None:
        """These frames are part of the observation at t0."""
        for frame in frames:
            self.stream.ledger.use(frame.serial)
            self._last_offset = (frame.stamp_ns - t0_ns) * 1e-9

    def to_prepare(self, points: Sequence[Point], at: int) -> Frame | None:
        """This camera's settled frame of a point, the first time it is asked for."""
        choice = self.choices(points, at)[-1]
        frame = choice.frame if choice.settled else None
        if frame is None or frame.serial in self._prepared or self.stream.ledger.is_used(frame.serial):
            return None
        self._prepared.add(frame.serial)
        return frame

    def choices(self, points: Sequence[Point], at: int) -> list[Choice]:
        """As CameraBuffer.choices; for the anchor, its own frames."""
        if not self.is_anchor:
            return self.buffer.choices(points, at)
        chosen = [Choice(self.buffer.at(points[at].stamp_ns), settled=True)]
        while len(chosen) < FRAMES_PER_CAMERA and at > 0 and points[at].index == points[at - 1].index + 1:
            at -= 1
            chosen.insert(0, Choice(self.buffer.at(points[at].stamp_ns), settled=True))
        return chosen

    def find(self, points: Sequence[Point], at: int, now_ns: int, anchor_lag: float) -> CameraFinding:
        """What it gives to the tick of point number `at` (negative: there is no point yet)."""
        since = now_ns - self._max_age_ns
        newest = self.buffer.newest
        reasons: dict[SkipReason, Numbers] = {}
        if newest is None:
            reasons = self._refusals(0)
            if self.bad_image:
                reasons[SkipReason.BAD_IMAGE] = {"error": self.bad_image}
            return CameraFinding(reasons=reasons or {SkipReason.WAITING_FOR_CAMERA: {}})
        # the anchor's newest frame may be one that a tick still waits for; t0 is what its age is about
        stamp_ns = points[at].stamp_ns if self.is_anchor and at >= 0 else newest.stamp_ns
        if stamp_ns < since:
            age = round((now_ns - stamp_ns) * 1e-9, 6)
            reasons[SkipReason.CAMERA_STALE] = {"age_s": age, "max_input_age": self._limits.max_input_age}
        frames: list[Frame | None] = []
        if at >= 0:
            frames = [choice.frame for choice in self.choices(points, at)]
            tick = points[at + 1 - len(frames) : at + 1]
            reasons.update(self._incomplete(tick, frames, now_ns, anchor_lag))
        if reasons:
            return CameraFinding(reasons={**self._refusals(since), **reasons})
        return CameraFinding(frames=tuple(frame for frame in frames if frame is not None))

    def state(self, now_ns: int, anchor_lag: float) -> CameraState:
        """For the status and the diagnostics."""
        newest = self.buffer.newest
        lag = self.stream.receive_lag
        return CameraState(
            name=self.config.name,
            index=self.config.index,
            required=self.config.required,
            stamp_ns=newest.stamp_ns if newest else 0,
            age=(now_ns - newest.stamp_ns) * 1e-9 if newest else math.nan,
            offset=anchor_lag - lag if math.isnan(self._last_offset) else self._last_offset,
            receive_lag=lag,
            period=self.buffer.period,
            rate_hz=self.stream.rate_hz(now_ns),
            size=(newest.height, newest.width) if newest else (0, 0),
            bad_image=self.bad_image,
            counts=self.stream.ledger.counts(),
        )

    def _incomplete(
        self, tick: Sequence[Point], frames: Sequence[Frame | None], now_ns: int, anchor_lag: float
    ) -> dict[SkipReason, Numbers]:
        """Why these are not four good frames of one size."""
        t0_ns = tick[-1].stamp_ns
        wanted = [t0_ns - k * STEP_NS for k in reversed(range(FRAMES_PER_CAMERA - len(tick)))]
        wanted = [stamp - len(tick) * STEP_NS for stamp in wanted]  # of points that do not exist
        missing = [*wanted, *(p.stamp_ns for p, frame in zip(tick, frames, strict=True) if frame is None)]
        if not missing:
            different = sizes(frame for frame in frames if frame is not None)
            return {SkipReason.BAD_IMAGE: {"sizes": [list(size) for size in different]}} if len(different) > 1 else {}
        bad = [stamp for stamp in missing if self.buffer.bad_near(stamp)]
        if bad:
            return {SkipReason.BAD_IMAGE: {"error": self.bad_image, "bad_frames": len(bad)}}
        skew = self._skew(tick, missing, now_ns, anchor_lag)
        if skew is not None:
            return {SkipReason.CAMERA_SKEW: {"offset_s": skew, "sync_tolerance": self._limits.sync_tolerance}}
        before_t0 = [round((stamp - t0_ns) * 1e-9, 6) for stamp in missing]
        return {SkipReason.CAMERA_GAP: {"missing_s": before_t0, "sync_tolerance": self._limits.sync_tolerance}}

    def _skew(self, tick: Sequence[Point], missing: Sequence[int], now_ns: int, anchor_lag: float) -> float | None:
        """The constant offset to the anchor, s, if that is why frames are missing; else None."""
        if self.is_anchor or len(tick) < FRAMES_PER_CAMERA:
            return None
        offsets = [offset for point in tick if (offset := self.buffer.offset_ns(point.stamp_ns)) is not None]
        if len(missing) == len(tick) and max(offsets) - min(offsets) <= SKEW_SPREAD_NS:
            return round(sorted(offsets)[len(offsets) // 2] * 1e-9, 6)
        # it sends without a gap, but behind: its newest frames have not reached the anchor's stamps yet
        newest_ns, arrival_ns = self.buffer.newest_ns, self.stream.arrival_ns
        sends = arrival_ns is not None and now_ns - arrival_ns <= self._limits.wait_timeout * 1e9
        behind = newest_ns is not None and all(stamp > newest_ns for stamp in missing)
        lag = anchor_lag - self.stream.receive_lag
        return round(lag, 6) if sends and behind and abs(lag) > self._limits.sync_tolerance else None

    def _refusals(self, since_ns: int) -> dict[SkipReason, Numbers]:
        """Reasons for which its messages were refused lately."""
        reasons = (SkipReason.ZERO_STAMP, SkipReason.STAMP_IN_FUTURE)
        dropped = self.stream.ledger.counts().dropped
        return {
            reason: {"dropped": dropped[reason.value]}
            for reason in reasons
            if self.stream.refused_since(reason.value, since_ns)
        }

    def _let_go(self, frame: Frame, reason: str | None) -> None:
        if frame.serial in self._prepared:
            self._prepared.remove(frame.serial)
            self.prepared_unused += not self.stream.ledger.is_used(frame.serial)
        if reason is None:
            self.stream.ledger.release(frame.serial)
        else:
            self.stream.ledger.release(frame.serial, reason)
