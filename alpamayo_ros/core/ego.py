"""Ego poses sorted by stamp, and the history of the ego frame: interpolated, and seen from the pose at t0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.frames import Refusal
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.stream import Entry, StampedStream
from alpamayo_ros.core.types import HISTORY_LENGTH, STEP_NS, Array, EgoPose

Stamps = NDArray[np.int64]

HISTORY_NS = (HISTORY_LENGTH - 1) * STEP_NS
KEEP_NS = HISTORY_NS + 1_500_000_000
CAPACITY = 2000
STANDSTILL_SPEED = 0.1  # m/s


@dataclass(frozen=True, eq=False)
class History:
    """The ego history of one t0."""

    xyz: Array  # [16, 3] m in ego
    rotation: Array  # [16, 3, 3]
    pose: EgoPose  # at t0, in the odometry's frame
    sources: tuple[Entry[EgoPose], ...]  # the poses it was made of


@dataclass(frozen=True)
class HistoryFault:
    """Why there is no history for a t0."""

    kind: str  # "behind": no pose at or after t0 yet; "short": it begins too late; "gap": poses too far apart
    numbers: dict[str, float]


class EgoBuffer(StampedStream[EgoPose]):
    """The poses of the last seconds."""

    def __init__(self) -> None:
        super().__init__(KEEP_NS, CAPACITY)
        self.refusal: Refusal | None = None  # of its newest message, if that was refused
        self.jump: Refusal | None = None  # the newest jump
        self.jump_ns = 0  # when that was

    def flush(self, reason: str) -> None:
        """Remove everything, and forget what was noted."""
        super().flush(reason)
        self.refusal = self.jump = None

    def history(self, t0_ns: int, max_gap_ns: int, standstill_padding: bool) -> History | HistoryFault:
        """The 16 poses from t0 - 1.5 s to t0, in ego.

        Positions are interpolated linearly and orientations along the shortest rotation (slerp), which is exact for a
        constant velocity in the odometry's frame with a constant turn rate.

        Args:
            t0_ns: time of the ego frame.
            max_gap_ns: poses further apart are not interpolated between.
            standstill_padding: whether, at standstill, the first pose stands for the missing older ones.
        """
        oldest, newest = self.oldest, self.newest
        if newest is None or oldest is None or newest.stamp_ns < t0_ns:
            behind_s = 0.0 if newest is None else (t0_ns - newest.stamp_ns) * 1e-9
            return HistoryFault("behind", {"newest_before_t0_s": round(behind_s, 3)})
        wanted: Stamps = t0_ns - HISTORY_NS + np.arange(HISTORY_LENGTH, dtype=np.int64) * STEP_NS
        if oldest.stamp_ns > wanted[0]:
            covered_s = (t0_ns - oldest.stamp_ns) * 1e-9
            if oldest.stamp_ns > t0_ns or not (standstill_padding and self._stands_still(t0_ns)):
                return HistoryFault("short", {"covered_s": round(covered_s, 3), "needed_s": HISTORY_NS * 1e-9})
            wanted = np.maximum(wanted, oldest.stamp_ns)
        return self._interpolate(wanted, max_gap_ns)

    def interpolated(self, stamp_ns: int) -> EgoPose | None:
        """The pose at a time between two stored ones; None outside."""
        history = self._interpolate(np.array([stamp_ns], dtype=np.int64), KEEP_NS) if self._covers(stamp_ns) else None
        return history.pose if isinstance(history, History) else None

    def _covers(self, stamp_ns: int) -> bool:
        return bool(len(self)) and self.entry(0).stamp_ns <= stamp_ns <= self.entry(len(self) - 1).stamp_ns

    def _interpolate(self, wanted: Stamps, max_gap_ns: int) -> History | HistoryFault:
        first = max(self.index_at_or_after(int(wanted[0])) - 1, 0)
        last = min(self.index_at_or_after(int(wanted[-1])) + 1, len(self))
        entries = [self.entry(index) for index in range(first, last)]
        stamps = np.array([each.stamp_ns for each in entries], dtype=np.int64)
        right = np.searchsorted(stamps, wanted)
        exact = stamps[right] == wanted
        left = np.where(exact, right, right - 1)
        gaps = stamps[right] - stamps[left]
        if (gaps > max_gap_ns).any():
            widest = int(gaps.argmax())
            before_t0_s = (wanted[-1] - wanted[widest]) * 1e-9
            return HistoryFault("gap", {"gap_s": round(gaps[widest] * 1e-9, 3), "before_t0_s": round(before_t0_s, 3)})
        part = np.where(exact, 0.0, (wanted - stamps[left]) / np.maximum(gaps, 1))
        positions = np.array([each.item.position for each in entries])
        orientations = np.array([each.item.orientation for each in entries])
        position = positions[left] + part[:, None] * (positions[right] - positions[left])
        orientation = slerp(orientations[left], orientations[right], part)
        world_from_ego = matrix_from_quaternion(orientation)
        ego_from_world = world_from_ego[-1].T
        xyz = (position - position[-1]) @ ego_from_world.T
        rotation = ego_from_world @ world_from_ego
        xyz[-1], rotation[-1] = 0.0, np.eye(3)  # without rounding
        nearest = entries[int(left[-1])].item, entries[int(right[-1])].item
        pose = EgoPose(
            int(wanted[-1]),
            position[-1],
            orientation[-1],
            _blend(nearest[0].linear_velocity, nearest[1].linear_velocity, float(part[-1])),
            _blend(nearest[0].angular_velocity, nearest[1].angular_velocity, float(part[-1])),
        )
        touched = sorted({*left.tolist(), *right.tolist()})
        return History(xyz, rotation, pose, tuple(entries[index] for index in touched))

    def _stands_still(self, t0_ns: int) -> bool:
        """Whether the vehicle did not move from the first pose until t0."""
        entries = [each for each in self if each.stamp_ns <= t0_ns] or list(self)[:1]
        positions = np.array([each.item.position for each in entries])
        speeds = [float(np.linalg.norm(v)) for each in entries if (v := each.item.linear_velocity) is not None]
        moved = float(np.linalg.norm(positions - positions[0], axis=-1).max())
        seconds = max((entries[-1].stamp_ns - entries[0].stamp_ns) * 1e-9, 0.1)
        return moved <= STANDSTILL_SPEED * max(seconds, 1.0) and max(speeds, default=0.0) <= STANDSTILL_SPEED


def slerp(first: Array, second: Array, part: Array) -> Array:
    """Unit quaternions [N, 4] on the shortest way from `first` to `second` at `part` [N] of it.

    Shoemake, Animating rotation with quaternion curves, SIGGRAPH 1985.
    """
    cosine = (first * second).sum(-1)
    second = np.where(cosine[:, None] < 0, -second, second)
    # not arccos, which can't tell small angles from zero
    angle = 2 * np.arctan2(np.linalg.norm(first - second, axis=-1), np.linalg.norm(first + second, axis=-1))
    near = angle < 1e-6  # linear there: the difference is below rounding
    sine = np.where(near, 1.0, np.sin(angle))
    from_first = np.where(near, 1 - part, np.sin((1 - part) * angle) / sine)
    from_second = np.where(near, part, np.sin(part * angle) / sine)
    blended = from_first[:, None] * first + from_second[:, None] * second
    unit: Array = blended / np.linalg.norm(blended, axis=-1, keepdims=True)
    return unit


def _blend(first: Array | None, second: Array | None, part: float) -> Array | None:
    if first is None or second is None:
        return None
    return first + part * (second - first)
