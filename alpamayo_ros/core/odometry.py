"""The odometry as the builder sees it: its poses, its books, and what keeps a tick from having a history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from alpamayo_ros.core.accounting import DUPLICATE
from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.ego import STANDSTILL_SPEED, EgoBuffer, EgoHistory, NoHistory
from alpamayo_ros.core.stream import Stream
from alpamayo_ros.core.types import EgoPose, SkipReason

Numbers = Mapping[str, Any]
FASTEST = 1e6  # m/s and rad/s; its square is still a number to calculate with
LONGEST_QUATERNION = 1e6
FARTHEST = 1e9  # m; much further out, a number's steps are no longer small beside a path's


def pose_fault(pose: EgoPose) -> str | None:
    """What makes a pose unusable, in words."""
    for name, length in (("position", 3), ("orientation", 4), ("linear_velocity", 3), ("angular_velocity", 3)):
        values = getattr(pose, name)
        if values is None:
            continue
        if np.shape(values) != (length,):
            return f"{name} has the shape {np.shape(values)}, not ({length},)"
        if not np.isfinite(values).all():
            return f"{name} is not finite"
        if name == "position" and np.abs(values).max() > FARTHEST:
            return f"position is {np.abs(values).max():.3g} m from the origin, expected at most {FARTHEST:.0e}"
        if name.endswith("velocity") and np.abs(values).max() > FASTEST:
            return f"{name} is {np.abs(values).max():.3g} m/s or rad/s, expected at most {FASTEST:.0e}"
    if np.abs(pose.orientation).max() > LONGEST_QUATERNION:
        return f"orientation is {np.abs(pose.orientation).max():.3g} long, expected a quaternion of length 1"
    if float(np.linalg.norm(pose.orientation)) < 1e-6:
        return "orientation is the zero quaternion"
    return None


def normalised(pose: EgoPose) -> EgoPose:
    """The pose in float64, with a quaternion of length 1."""
    orientation = np.array(pose.orientation, dtype=np.float64)
    linear, angular = (
        None if velocity is None else np.array(velocity, dtype=np.float64)
        for velocity in (pose.linear_velocity, pose.angular_velocity)
    )
    position = np.array(pose.position, dtype=np.float64)
    return EgoPose(pose.stamp_ns, position, orientation / np.linalg.norm(orientation), linear, angular)


class OdometryInput:
    """Poses of base_link. Times in ns of the node's clock."""

    def __init__(self, config: BuilderConfig) -> None:
        self.stream = Stream(round(config.future_tolerance * 1e9))
        self.buffer = EgoBuffer(
            round(config.max_odometry_gap * 1e9), config.max_odometry_jump, config.standstill_padding
        )
        self.offset_ns = round(config.odometry_time_offset * 1e9)
        self.frames = ("", "")
        self.problem = ""
        self._mounting = config.mounting
        self._max_age = config.max_odometry_age

    def usable(self, pose: EgoPose, now_ns: int) -> EgoPose | None:
        """The pose of base_link, checked; None if it is bad, which is counted."""
        fault = pose_fault(pose)
        if fault is not None:
            self.problem = fault
            self.stream.refuse(SkipReason.BAD_ODOMETRY.value, now_ns)
            return None
        return self._mounting.base_pose(normalised(pose))

    def refusal(self, raw_stamp_ns: int, stamp_ns: int, now_ns: int) -> str | None:
        """As Stream.refusal."""
        return self.stream.refusal(raw_stamp_ns, stamp_ns, self.buffer.newest_ns, now_ns)

    def hold(self, pose: EgoPose, now_ns: int) -> bool:
        """Keep a pose; False if one of the same stamp is held, or if a jump has ended the history it belongs to."""
        if pose.stamp_ns in self.buffer:
            self.stream.refuse(DUPLICATE, now_ns)
            return False
        if self.buffer.is_before_jump(pose.stamp_ns):
            self.stream.refuse(SkipReason.ODOMETRY_JUMP.value, now_ns)
            return False
        old, jumped = self.buffer.add(pose)
        self.stream.hold(pose.stamp_ns, pose.stamp_ns, now_ns)
        for stamp in old:
            self.stream.ledger.release(stamp)
        for stamp in jumped:
            self.stream.ledger.release(stamp, SkipReason.ODOMETRY_JUMP.value)
        return True

    def flush(self, reason: str) -> None:
        """Forget every pose; those never used count as dropped for this reason."""
        for stamp in self.buffer.clear():
            self.stream.ledger.release(stamp, reason)
        self.stream.flush()
        self.problem = ""

    def use(self, history: EgoHistory) -> None:
        """This history is part of an observation."""
        for stamp in history.used:
            self.stream.ledger.use(stamp)

    def find(self, t0_ns: int | None, now_ns: int) -> EgoHistory | NoHistory:
        """The history at t0, or all that keeps it from being there."""
        reasons: dict[SkipReason, Numbers] = {}
        newest_ns = self.buffer.newest_ns
        refused_lately = self._refused(now_ns - round(self._max_age * 1e9))
        if newest_ns is None and not self._refused(0):
            reasons[SkipReason.WAITING_FOR_ODOMETRY] = {}
        if newest_ns is not None and (now_ns - newest_ns) * 1e-9 > self._max_age and not refused_lately:
            age = round((now_ns - newest_ns) * 1e-9, 6)
            reasons[SkipReason.ODOMETRY_STALE] = {"age_s": age, "max_odometry_age": self._max_age}
        found = NoHistory({}) if t0_ns is None else self.buffer.history(t0_ns)
        if isinstance(found, EgoHistory):
            return NoHistory(reasons) if reasons else found
        reasons.update(found.reasons)
        if refused_lately or (newest_ns is None and self._refused(0)):
            reasons[SkipReason.BAD_ODOMETRY] = self._refused(0)
        return NoHistory(reasons)

    def is_standing(self, now_ns: int) -> tuple[bool, str]:
        """Whether the vehicle stands still, and what is known of that, in words. Without a fresh pose it may move."""
        newest_ns = self.buffer.newest_ns
        if newest_ns is None:
            return False, "no odometry says whether the vehicle moves"
        age = (now_ns - newest_ns) * 1e-9
        if age > self._max_age:
            return False, f"the odometry is {age:.1f} s old, and the vehicle may be moving"
        speed = self.buffer.speed()
        if speed > STANDSTILL_SPEED:
            return False, f"the vehicle moves at {speed:.1f} m/s"
        return True, "the vehicle stands still"

    def _refused(self, since_ns: int) -> dict[str, Any]:
        """What was wrong with messages refused since then."""
        words = {
            SkipReason.BAD_ODOMETRY.value: self.problem,
            SkipReason.ZERO_STAMP.value: "the stamp is 0",
            SkipReason.STAMP_IN_FUTURE.value: "the stamp is ahead of the clock",
        }
        return {reason: text for reason, text in words.items() if self.stream.refused_since(reason, since_ns)}
