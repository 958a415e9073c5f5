"""From messages to observations: which frames, which poses, or why not. One core for the node, bags and simulation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core import odometry
from alpamayo_ros.core.accounting import StreamCounts
from alpamayo_ros.core.builder_config import BuilderConfig, CameraConfig
from alpamayo_ros.core.diagnosis import camera_findings, frame_sizes, odometry_findings, skip
from alpamayo_ros.core.ego import HISTORY_NS, EgoBuffer, History
from alpamayo_ros.core.frames import CameraBuffer, Refusal
from alpamayo_ros.core.lattice import FrameSet, Lattice
from alpamayo_ros.core.stream import Entry
from alpamayo_ros.core.tick import Tick, ticks
from alpamayo_ros.core.types import STEP_NS, EgoPose, Frame, Observation, Skip, SkipReason

__all__ = ["BuilderConfig", "CameraConfig", "CameraState", "ObservationBuilder", "build_observation_builder"]

_serial_numbers = itertools.count(1)  # never the same twice in a process, whatever is reset


def build_observation_builder(config: BuilderConfig) -> ObservationBuilder:
    """The builder for a rig: the same one in the node, the evaluator and the simulator."""
    return ObservationBuilder(config)


@dataclass(frozen=True)
class CameraState:
    """One camera, at a moment."""

    name: str
    index: int
    required: bool
    stamp_ns: int  # of its newest frame; 0 when there is none
    age: float  # s, of that frame; NaN when there is none
    offset: float  # s, of its frame in the newest set to the anchor's; NaN when unknown
    receive_lag: float  # s, arrival minus stamp of its newest frame; NaN when there is none
    period: float  # s between its frames; NaN when unknown
    counts: StreamCounts


class ObservationBuilder:
    """Collects frames and poses, and makes observations of them.

    Not thread-safe: a node with several threads holds one lock around every call. All times are of the caller's clock,
    in ns; there is no other clock in here.
    """

    def __init__(self, config: BuilderConfig) -> None:
        self.config = config
        self.epoch = 0
        self.navigation = ""
        self._navigation_ns = 0
        self.odometry_frame = ""  # frame_id and child_frame_id of the poses
        self.odometry_child_frame = ""
        ordered = sorted(config.cameras, key=lambda camera: camera.index)
        self._cameras = {each.name: CameraBuffer(each.name, each.index, each.required) for each in ordered}
        self._offsets_ns = {each.name: round(each.time_offset * 1e9) for each in ordered}
        self._anchor = self._cameras[config.anchor]
        others = {name: camera for name, camera in self._cameras.items() if camera is not self._anchor}
        self._tolerance_ns = round(config.sync_tolerance * 1e9)
        self._lattice = Lattice(self._anchor, others, self._tolerance_ns)
        self._ego = EgoBuffer()
        self._blocks: dict[SkipReason, dict[str, Any]] = {}
        self._decided_ns: int | None = None  # t0 of the newest tick that was taken or skipped
        self._jumped_from_ns: int | None = None  # stamp of the first message after a jump in time
        self._jump: dict[str, Any] | None = None
        self._prepared: dict[int, None] = {}  # serials handed out by frames_to_prepare, oldest first

    # What comes in

    def add_frame(
        self,
        camera: str,
        stamp_ns: int,
        data: bytes | memoryview | NDArray[np.uint8],
        encoding: str,
        *,
        now_ns: int,
        height: int = 0,
        width: int = 0,
        step: int = 0,
        is_bigendian: bool = False,
    ) -> Frame | None:
        """Store a camera's message, not decoded. None when it is refused, which is counted under its reason.

        Raises:
            KeyError: no camera has that name.
        """
        buffer = self._cameras[camera]
        buffer.receive()
        stamp_ns = stamp_ns + self._offsets_ns[camera] if stamp_ns else 0
        refusal = self._stamp_fault(stamp_ns, now_ns)
        if refusal is not None:
            buffer.refusal = refusal
            buffer.refuse(refusal.reason.value)
            return None
        if not self._is_timely(buffer, stamp_ns, now_ns):
            return None
        frame = Frame(next(_serial_numbers), buffer.index, stamp_ns, data, encoding, height, width, step, is_bigendian)
        buffer.refusal = None
        return frame if buffer.store(Entry(stamp_ns, now_ns, frame)) else None

    def add_pose(self, pose: EgoPose, *, frame_id: str = "", child_frame_id: str = "", now_ns: int) -> bool:
        """Store a pose of base_link. False when it is refused, which is counted under its reason."""
        if self._ego.newest is not None and (frame_id, child_frame_id) != (
            self.odometry_frame,
            self.odometry_child_frame,
        ):
            self.reset(now_ns, f"odometry frame changed from {self.odometry_frame!r} to {frame_id!r}")
        self.odometry_frame, self.odometry_child_frame = frame_id, child_frame_id
        self._ego.receive()
        stamp_ns = pose.stamp_ns + round(self.config.odometry_time_offset * 1e9) if pose.stamp_ns else 0
        refusal = self._stamp_fault(stamp_ns, now_ns)
        fault = odometry.pose_fault(pose)
        if fault is not None:
            refusal = Refusal(SkipReason.BAD_ODOMETRY, {"fault": fault})
        if refusal is not None:
            self._ego.refusal = refusal
            self._ego.refuse(refusal.reason.value)
            return False
        if not self._is_timely(self._ego, stamp_ns, now_ns):
            return False
        pose = odometry.normalised(pose, stamp_ns)
        max_gap_ns = round(self.config.max_odometry_gap * 1e9)
        jump = odometry.jump(self._ego, pose, max_gap_ns, self.config.max_odometry_jump)
        if jump is not None:
            self._ego.flush(SkipReason.ODOMETRY_JUMP.value)
            self._ego.jump, self._ego.jump_ns = Refusal(SkipReason.ODOMETRY_JUMP, dict(jump)), stamp_ns
        self._ego.refusal = None
        return self._ego.store(Entry(stamp_ns, now_ns, pose))

    def set_navigation(self, text: str, now_ns: int) -> None:
        """The navigation text from now on; an empty one clears it."""
        self.navigation, self._navigation_ns = text.strip(), now_ns

    def block(self, reason: SkipReason, **numbers: Any) -> None:
        """Let every tick be skipped for a reason that lies outside: disabled, engine_not_ready, clock_stopped."""
        self._blocks[reason] = numbers

    def unblock(self, reason: SkipReason) -> None:
        """End that."""
        self._blocks.pop(reason, None)

    def mark_bad_image(self, camera: str, serial: int, message: str) -> None:
        """Never choose that frame again: it could not be decoded."""
        self._cameras[camera].mark_bad(serial, message)
        self._lattice.forget(serial)

    def clock_jumped(self, now_ns: int) -> None:
        """The caller's clock itself jumped: start anew."""
        self.reset(now_ns, "clock jumped")

    def reset(self, now_ns: int, why: str = "reset") -> None:
        """Forget every message, and raise the epoch."""
        for camera in self._cameras.values():
            camera.flush("reset")
        self._ego.flush("reset")
        self._lattice.reset()
        self._prepared.clear()
        self._decided_ns = None
        self.epoch += 1
        self._jump, self._jumped_from_ns = {"why": why, "epoch": self.epoch}, None

    # What goes out

    def poll(self, now_ns: int) -> Observation | Skip | None:
        """The newest complete tick, a tick that has to be skipped, or None while nothing is decided.

        To be called after every message and now and then besides. A tick is given out once; older ones than the newest
        that was given out or skipped are not used any more.
        """
        open_ticks = [tick for tick in ticks(self._lattice.sets(), self._anchor) if self._is_due(tick)]
        for tick in reversed(open_ticks):
            history = self._completed(tick, now_ns)
            if history is not None:
                self._decided_ns = tick.t0_ns
                reasons = dict(self._blocks) | dict(self._staleness(tick, now_ns))
                return skip(reasons, tick.t0_ns) if reasons else self._take(tick, history, now_ns)
        for tick in open_ticks:
            if self._has_waited(tick, now_ns):
                self._decided_ns = tick.t0_ns
                return self._skip(tick, now_ns)
        return None

    def observe(self, now_ns: int) -> Observation | Skip:
        """What there is to see right now, whether or not a tick is due; changes nothing.

        Waits for nothing: what has come by now is all that counts.
        """
        made = ticks(self._lattice.sets(), self._anchor)
        for tick in reversed(made[-1:]):
            history = self._history(tick)
            missing = [each for each in self._cameras.values() if each.required and not tick.has(each)]
            if not missing and history is not None and not self._sizes_changed(tick):
                reasons = dict(self._blocks) | dict(self._staleness(tick, now_ns))
                return skip(reasons, tick.t0_ns) if reasons else self._observation(tick, history, now_ns)
        return self._skip(made[-1] if made else None, now_ns)

    def frames_to_prepare(self) -> list[Frame]:
        """Frames that the coming ticks will need and that were not handed out here before."""
        chosen = [
            choice.frame
            for each in self._lattice.sets()[-2:]
            for choice in (each.anchor, *each.others.values())
            if choice.frame is not None and choice.final
        ]
        fresh = [frame for frame in chosen if frame.serial not in self._prepared]
        self._prepared.update((frame.serial, None) for frame in fresh)
        while len(self._prepared) > 1000:
            del self._prepared[next(iter(self._prepared))]
        return fresh

    # What there is to know

    def navigation_age(self, now_ns: int) -> float | None:
        """Seconds since the navigation text came; None when none is in force."""
        return (now_ns - self._navigation_ns) * 1e-9 if self._navigation_in_force(now_ns) else None

    def newest_pose(self) -> EgoPose | None:
        """The pose with the latest stamp."""
        return None if self._ego.newest is None else self._ego.newest.item

    def interpolated_pose(self, stamp_ns: int) -> EgoPose | None:
        """The pose at a time between two stored ones."""
        return self._ego.interpolated(stamp_ns)

    def speed_mismatch(self) -> float | None:
        """How far the twist is from what the poses do, in m/s; None when it can't be told. Only for a warning."""
        return odometry.speed_mismatch(self._ego)

    def counts(self) -> dict[str, StreamCounts]:
        """What became of every message, per camera and for "odometry"."""
        return {name: camera.counts() for name, camera in self._cameras.items()} | {"odometry": self._ego.counts()}

    def camera_states(self, now_ns: int) -> list[CameraState]:
        """Every camera, in the order of the prompt."""
        sets = self._lattice.sets()
        return [self._camera_state(camera, sets, now_ns) for camera in self._cameras.values()]

    # How

    def _stamp_fault(self, stamp_ns: int, now_ns: int) -> Refusal | None:
        if stamp_ns <= 0:
            return Refusal(SkipReason.ZERO_STAMP, {})
        ahead_s = (stamp_ns - now_ns) * 1e-9
        if ahead_s > self.config.future_tolerance:
            numbers = {"ahead_s": round(ahead_s, 3), "future_tolerance": self.config.future_tolerance}
            return Refusal(SkipReason.STAMP_IN_FUTURE, numbers)
        return None

    def _is_timely(self, buffer: CameraBuffer | EgoBuffer, stamp_ns: int, now_ns: int) -> bool:
        """Whether a message is no late one; several of those in a row reset everything, and this one is the first."""
        if buffer.has_jumped_back(stamp_ns):
            self.reset(now_ns, "stamps jumped back")
        elif buffer.is_late(stamp_ns):
            buffer.refuse("late")
            return False
        if self._jump is not None and self._jumped_from_ns is None:
            self._jumped_from_ns = stamp_ns
        return True

    def _is_due(self, tick: Tick) -> bool:
        """Whether a tick is newer than the last one by the configured period, give or take half a step."""
        if self._decided_ns is None:
            return True
        period_ns = max(round(1e9 / self.config.rate_hz), STEP_NS)
        return tick.t0_ns - self._decided_ns > period_ns - STEP_NS // 2

    def _has_waited(self, tick: Tick, now_ns: int) -> bool:
        return now_ns - tick.anchor_arrival_ns >= round(self.config.wait_timeout * 1e9)

    def _completed(self, tick: Tick, now_ns: int) -> History | None:
        """The history of a tick that has everything, with nothing better still under way; None otherwise."""
        waited = self._has_waited(tick, now_ns)
        for camera in self._cameras.values():
            settled = waited or tick.is_final(camera)
            if camera.required:
                if not (tick.has(camera) and settled):
                    return None
            elif not settled and self._is_alive(camera, now_ns):
                return None
        return None if self._sizes_changed(tick) else self._history(tick)

    def _is_alive(self, camera: CameraBuffer, now_ns: int) -> bool:
        newest = camera.newest
        return newest is not None and now_ns - newest.stamp_ns <= self.config.max_input_age * 1e9

    def _sizes_changed(self, tick: Tick) -> bool:
        return any(len(frame_sizes(camera, tick)) > 1 for camera in self._cameras.values() if camera.required)

    def _history(self, tick: Tick) -> History | None:
        config = self.config
        history = self._ego.history(tick.t0_ns, round(config.max_odometry_gap * 1e9), config.standstill_padding)
        return history if isinstance(history, History) else None

    def _staleness(self, tick: Tick, now_ns: int) -> dict[SkipReason, dict[str, Any]]:
        """A complete tick that comes too late to be worth anything."""
        age_s = (now_ns - tick.t0_ns) * 1e-9
        if age_s <= self.config.max_input_age:
            return {}
        numbers = {"camera": self._anchor.name, "age_s": round(age_s, 3), "max_input_age": self.config.max_input_age}
        return {SkipReason.CAMERA_STALE: numbers}

    def _take(self, tick: Tick, history: History, now_ns: int) -> Observation:
        self._lattice.settle(list(tick.sets))
        observation = self._observation(tick, history, now_ns)
        for camera in self._cameras.values():
            if camera.index in observation.frames:
                for choice in tick.choices(camera):
                    if choice is not None and choice.entry is not None:
                        camera.use(choice.entry)
        for entry in history.sources:
            self._ego.use(entry)
        return observation

    def _observation(self, tick: Tick, history: History, now_ns: int) -> Observation:
        frames: dict[int, tuple[Frame, ...]] = {}
        for camera in self._cameras.values():
            chosen = [choice.frame for choice in tick.choices(camera) if choice is not None]
            if all(frame is not None for frame in chosen) and len(frame_sizes(camera, tick)) <= 1:
                frames[camera.index] = tuple(frame for frame in chosen if frame is not None)
        return Observation(
            t0_ns=tick.t0_ns,
            epoch=self.epoch,
            frames=frames,
            history_xyz=history.xyz,
            history_rotation=history.rotation,
            pose=replace(history.pose, stamp_ns=tick.t0_ns),
            navigation=self.navigation if self._navigation_in_force(now_ns) else None,
        )

    def _navigation_in_force(self, now_ns: int) -> bool:
        timeout_ns = self.config.navigation_timeout * 1e9
        return bool(self.navigation) and (timeout_ns == 0 or now_ns - self._navigation_ns <= timeout_ns)

    def _skip(self, tick: Tick | None, now_ns: int) -> Skip:
        """The skip of a tick that can't be, or of the moment when there is none."""
        reasons: dict[SkipReason, dict[str, Any]] = dict(self._blocks)
        if self._is_fresh_from_a_jump(tick):
            reasons[SkipReason.TIME_JUMP] = dict(self._jump or {})
        findings = [
            *camera_findings(self.config, self._cameras, tick, now_ns),
            *odometry_findings(self.config, self._ego, tick, now_ns),
        ]
        for reason, numbers in findings:
            reasons.setdefault(reason, numbers)
        if not reasons:  # everything is there, but was not when the tick's time was up
            reasons[SkipReason.CAMERA_GAP] = {"camera": self._anchor.name, "wait_timeout": self.config.wait_timeout}
        return skip(reasons, None if tick is None else tick.t0_ns)

    def _is_fresh_from_a_jump(self, tick: Tick | None) -> bool:
        if self._jump is None:
            return False
        if tick is None or self._jumped_from_ns is None:
            return True
        return tick.t0_ns - self._jumped_from_ns < HISTORY_NS

    def _camera_state(self, camera: CameraBuffer, sets: list[FrameSet], now_ns: int) -> CameraState:
        newest, period, lag = camera.newest, camera.period_ns(), camera.newest_lag_ns
        offset_ns: int | None = 0 if camera is self._anchor else None
        for each in reversed(sets):
            choice = each.choice(camera.name)
            if choice is not None:
                offset_ns = choice.nearest_offset_ns
                break
        return CameraState(
            camera.name,
            camera.index,
            camera.required,
            0 if newest is None else newest.stamp_ns,
            _seconds(None if newest is None else now_ns - newest.stamp_ns),
            _seconds(offset_ns),
            _seconds(lag),
            _seconds(period),
            camera.counts(),
        )


def _seconds(value_ns: int | None) -> float:
    return float("nan") if value_ns is None else value_ns * 1e-9
