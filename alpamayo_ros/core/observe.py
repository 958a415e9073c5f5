"""From messages to observations: the one way in which the node, the evaluator and the simulator come to a tick."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from alpamayo_ros.core.accounting import DUPLICATE, RESET, StreamCounts
from alpamayo_ros.core.assess import Assessor
from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.ego import EgoHistory
from alpamayo_ros.core.lattice import Lattice, Point
from alpamayo_ros.core.navigation import Navigation
from alpamayo_ros.core.obstacles import Obstacles
from alpamayo_ros.core.pending import PendingTicks
from alpamayo_ros.core.rig_inputs import RigInputs
from alpamayo_ros.core.stream import LATE_NS
from alpamayo_ros.core.types import ConfigurationError, EgoPose, Frame, Observation, Skip, SkipReason

_serials = itertools.count(1)


def build_observation_builder(config: BuilderConfig) -> ObservationBuilder:
    """A builder that has seen nothing yet."""
    return ObservationBuilder(config)


class ObservationBuilder:
    """Takes messages as they come and gives observations, or says why there is none.

    It has no clock: `now_ns` is the time of the node's clock, ns, at every call. It is not thread-safe: who calls it
    from several threads holds one lock around every call.
    """

    def __init__(self, config: BuilderConfig) -> None:
        self._config = config
        self.inputs = RigInputs(config)  # to be looked at from outside
        self._anchor, self._odometry = self.inputs.anchor, self.inputs.odometry
        self._lattice = Lattice()
        self._pending = PendingTicks(config.rate_hz)
        self._assessor = Assessor(self.inputs, self._pending, config)
        self._obstacles = Obstacles()
        self._fresh = False  # whether a frame has come since frames_to_prepare
        self._navigation = Navigation(config.navigation_timeout)
        self._now_ns: int | None = None  # at the last call
        self._epoch = 0
        self._next_silence_ns: int | None = None  # when it is to be said that the anchor is silent

    # ---- inputs

    def add_frame(
        self,
        camera: str,
        stamp_ns: int,
        data: bytes | memoryview | Any,
        encoding: str,
        *,
        now_ns: int,
        height: int = 0,
        width: int = 0,
        step: int = 0,
        is_bigendian: bool = False,
    ) -> Frame | None:
        """An image has come; `stamp_ns` as sent. O(log n).

        Returns:
            The frame, with its stamp corrected by the camera's time_offset, or None if it was refused and counted.

        Raises:
            ConfigurationError: there is no camera of this name.
        """
        source = self.inputs.camera(camera)
        self._notice(now_ns)
        corrected_ns = stamp_ns + source.offset_ns
        refusal = source.stream.refusal(stamp_ns, corrected_ns, source.buffer.newest_ns, now_ns)
        if refusal is None and corrected_ns in source.buffer:
            refusal = DUPLICATE
        if refusal is not None:
            source.stream.refuse(refusal, now_ns)
            return None
        if source.stream.has_jumped:
            self._jump_back(now_ns, camera, source.buffer.newest_ns, corrected_ns)
        index = source.config.index
        frame = Frame(next(_serials), index, corrected_ns, data, encoding, height, width, step, is_bigendian)
        if not source.hold(frame, now_ns):
            return None
        self._fresh = True
        if source is self._anchor:
            self._extend_lattice(frame, now_ns)
        return frame

    def add_pose(self, pose: EgoPose, *, frame_id: str = "", child_frame_id: str = "", now_ns: int) -> bool:
        """A pose of the odometry's child frame has come, with its stamp as sent. O(log n).

        A changed frame is a reset. The pose and its twist are moved to base_link by `child_to_base`.

        Returns:
            Whether it was kept; if not, it was counted under its reason.
        """
        self._notice(now_ns)
        odometry = self._odometry
        frames = (frame_id, child_frame_id)
        usable = odometry.usable(pose, now_ns)
        if usable is None:
            return False
        if frames != odometry.frames:
            if len(odometry.buffer):
                self._flush(RESET, now_ns)
                self._obstacles.reframed(now_ns, frames=list(frames), frames_before=list(odometry.frames))
            odometry.frames = frames
        usable = replace(usable, stamp_ns=pose.stamp_ns + odometry.offset_ns)
        refusal = odometry.refusal(pose.stamp_ns, usable.stamp_ns, now_ns)
        if refusal is not None:
            odometry.stream.refuse(refusal, now_ns)
            return False
        if odometry.stream.has_jumped:
            self._jump_back(now_ns, "odometry", odometry.buffer.newest_ns, usable.stamp_ns)
        return odometry.hold(usable, now_ns)

    def set_navigation(self, text: str, now_ns: int) -> None:
        """A navigation text has come; an empty one clears it."""
        self._notice(now_ns)
        self._navigation.set(text, now_ns)

    def clock_began(self, now_ns: int) -> None:
        """The node's clock has begun, at `now_ns`: forget what came without a time, raise the epoch."""
        self._now_ns = now_ns
        self._flush(RESET, now_ns)

    def clock_jumped(self, now_ns: int) -> None:
        """The node's clock itself has jumped, to `now_ns`: forget all inputs, raise the epoch."""
        before_ns, self._now_ns = self._now_ns, now_ns
        by = None if before_ns is None else round((now_ns - before_ns) * 1e-9, 6)
        self._time_jump(now_ns, "clock", by)

    def mark_bad_image(self, serial: int, message: str) -> None:
        """The engine could not decode this frame: it is never chosen again. Unknown serials are ignored."""
        for camera in self.inputs.cameras.values():
            frame = camera.take_out(serial, message)
            if frame is not None and camera is self._anchor:
                self._lattice.remove(frame.stamp_ns)
                self.inputs.forget_choices(frame.stamp_ns)

    def block(self, reason: SkipReason, **numbers: Any) -> None:
        """Every tick is skipped for this reason until `unblock`: disabled, engine_not_ready, clock_stopped."""
        self._obstacles.blocked[reason] = numbers

    def unblock(self, reason: SkipReason) -> None:
        """End what `block` began; nothing if it hasn't."""
        self._obstacles.blocked.pop(reason, None)

    def reset(self, now_ns: int, why: str = "reset") -> None:
        """Forget all inputs, the navigation text too, and raise the epoch."""
        self._notice(now_ns)
        self._flush(RESET, now_ns)
        self._obstacles.forget_changes()
        self._navigation.set("", now_ns)

    # ---- ticks

    def poll(self, now_ns: int) -> Observation | Skip | None:
        """Ask after every message, and by a timer: is a tick decided that was not yet?

        Returns:
            The Observation of the newest complete tick if that was not given out yet and the rate allows it; or the
            Skip of the oldest tick that stayed incomplete for `wait_timeout`, each once; or None. While the anchor is
            silent there are no ticks: then a Skip per tick's time, from `max_input_age` of silence on.
        """
        self._notice(now_ns)
        points = self._lattice.points
        undecided = self._pending.open(points)
        for at in reversed(undecided):
            if self._assessor.is_complete(points, at, now_ns):
                result = self._assess(points, at, now_ns)
                if isinstance(result, Observation) or self._obstacles.blocked:
                    self._pending.take_turn(points[at])
                    self._count_use(result)
                    return result
        for at in undecided:
            if not self._assessor.still_waits(points[at], now_ns):
                self._pending.decide(points[at])
                return self._assess(points, at, now_ns)
        if self._next_silence_ns is not None and now_ns >= self._next_silence_ns:
            result = self._assess(points, len(points) - 1, now_ns)
            self._next_silence_ns = now_ns + round(1e9 / self._config.rate_hz)
            return replace(result, t0_ns=None) if isinstance(result, Skip) else None
        return None

    def observe(self, now_ns: int) -> Observation | Skip:
        """Answer now: the newest complete tick, used or not, or why there is none. Decides nothing.

        A tick that still may become complete (within `wait_timeout`) makes way for an older one; one that has stayed
        incomplete does not.
        """
        self._notice(now_ns)
        points = self._lattice.points
        for at in reversed(range(len(points))):
            waits = self._assessor.still_waits(points[at], now_ns)
            if self._assessor.is_complete(points, at, now_ns) or not waits or self._obstacles.blocked:
                result = self._assess(points, at, now_ns)
                if isinstance(result, Observation) or not waits or self._obstacles.blocked:
                    self._count_use(result)
                    return result
        result = self._assess(points, len(points) - 1, now_ns)
        self._count_use(result)
        return result

    def frames_to_prepare(self) -> list[Frame]:
        """Frames of the two newest lattice points that are settled and were neither used nor given out here before."""
        if self._obstacles.blocked or not self._fresh:
            return []
        self._fresh = False
        points = self._lattice.points
        newest = range(max(len(points) - 2, 0), len(points))
        found = (camera.to_prepare(points, at) for at in newest for camera in self.inputs.cameras.values())
        return [frame for frame in found if frame is not None]

    # ---- state

    @property
    def config(self) -> BuilderConfig:
        """As given. Of a running builder only the rate may be changed, by setting a configuration with another one."""
        return self._config

    @config.setter
    def config(self, config: BuilderConfig) -> None:
        if replace(config, rate_hz=self._config.rate_hz) != self._config:
            raise ConfigurationError("of a running builder only rate_hz may be changed: make a new one")
        if config != self._config:
            self._config = config
            self._pending.rate_hz = config.rate_hz

    @property
    def epoch(self) -> int:
        """Raised by every time jump and reset."""
        return self._epoch

    @property
    def odometry_frame(self) -> str:
        """The poses' frame_id; "" until one has come."""
        return self._odometry.frames[0]

    @property
    def navigation(self) -> str:
        """The last navigation text, in force or not."""
        return self._navigation.text

    def navigation_age(self, now_ns: int) -> float | None:
        """Seconds since the navigation text came; None when none is in force."""
        return self._navigation.age(now_ns)

    def counts(self) -> dict[str, StreamCounts]:
        """Per camera and for "odometry": received = used + waiting + dropped by reason, always."""
        return self.inputs.counts()

    # ---- inside

    def _notice(self, now_ns: int) -> None:
        """The clock has come to this time; a step back that nobody told about is a jump too."""
        if self._now_ns is not None and now_ns < self._now_ns - LATE_NS:
            self.clock_jumped(now_ns)
        if self._next_silence_ns is None:
            self._be_patient(now_ns)
        self._now_ns = now_ns

    def _be_patient(self, now_ns: int) -> None:
        self._next_silence_ns = now_ns + round(self._config.max_input_age * 1e9)

    def _jump_back(self, now_ns: int, name: str, newest_ns: int | None, stamp_ns: int) -> None:
        by = None if newest_ns is None else round((stamp_ns - newest_ns) * 1e-9, 6)
        self._time_jump(now_ns, name, by)

    def _time_jump(self, now_ns: int, name: str, by_s: float | None) -> None:
        self._flush(SkipReason.TIME_JUMP.value, now_ns)
        self._obstacles.time_jumped(now_ns, input=name, by_s=by_s)

    def _flush(self, reason: str, now_ns: int) -> None:
        self.inputs.flush(reason)
        self._lattice.clear()
        self._pending.clear()
        self._epoch += 1
        self._navigation.restart(now_ns)
        self._be_patient(now_ns)

    def _extend_lattice(self, frame: Frame, now_ns: int) -> None:
        self._pending.anchor_came(frame.stamp_ns, now_ns)
        self._lattice.add(frame.stamp_ns)
        self._be_patient(now_ns)
        if frame is not self._anchor.buffer.newest:
            self.inputs.forget_choices(frame.stamp_ns)
        oldest_ns = self._anchor.buffer.oldest_ns or frame.stamp_ns
        self._lattice.trim(oldest_ns)
        self._pending.forget_before(oldest_ns)
        self.inputs.forget_frames_before(oldest_ns)

    def _assess(self, points: Sequence[Point], at: int, now_ns: int) -> Observation | Skip:
        """The tick of point number `at` (negative: there is none), or all reasons that hold."""
        t0_ns = points[at].stamp_ns if at >= 0 else None
        found = self._assessor.assess(points, at, now_ns)
        lacks = self._obstacles.blocked or found.lacking
        if not lacks and t0_ns is not None and found.history is not None:
            return self._observation(t0_ns, found.frames, found.history, now_ns)
        return self._obstacles.skip(t0_ns, found.lacking, now_ns)

    def _observation(
        self, t0_ns: int, frames: Mapping[int, tuple[Frame, ...]], history: EgoHistory, now_ns: int
    ) -> Observation:
        self._used_history = history
        return Observation(
            t0_ns=t0_ns,
            epoch=self._epoch,
            frames=frames,
            history_xyz=history.xyz,
            history_rotation=history.rotation,
            pose=history.pose,
            navigation=None if self.navigation_age(now_ns) is None else self.navigation,
        )

    def _count_use(self, result: Observation | Skip) -> None:
        if isinstance(result, Observation):
            self.inputs.use(result.frames, self._used_history, result.t0_ns)
