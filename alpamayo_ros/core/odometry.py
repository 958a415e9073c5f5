"""Poses on their way into the buffer: moved to base_link's time, checked, and watched for jumps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from alpamayo_ros.core.ego import EgoBuffer
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.stream import Entry
from alpamayo_ros.core.types import EgoPose

JUMP_TURN = 0.35  # rad beyond what the turn rate explains


def pose_fault(pose: EgoPose) -> str | None:
    """What makes a pose unusable, in words."""
    if not np.isfinite(pose.position).all():
        return "position is not finite"
    if not np.isfinite(pose.orientation).all():
        return "orientation is not finite"
    if float(np.linalg.norm(pose.orientation)) < 1e-6:
        return "orientation is the zero quaternion"
    for name in ("linear_velocity", "angular_velocity"):
        velocity = getattr(pose, name)
        if velocity is not None and not np.isfinite(velocity).all():
            return f"{name} is not finite"
    return None


def normalised(pose: EgoPose, stamp_ns: int) -> EgoPose:
    """The pose at another stamp, with a quaternion of length 1."""
    return replace(pose, stamp_ns=stamp_ns, orientation=pose.orientation / np.linalg.norm(pose.orientation))


def jump(buffer: EgoBuffer, pose: EgoPose, max_gap_ns: int, max_jump: float) -> dict[str, float] | None:
    """The numbers of a step from the newest pose that neither twist nor the last steps explain; None when they do.

    A twist that says too little (zero, or in another frame) must not turn every step into a jump: the speed at which
    the poses themselves moved until now explains as much as the twist does.
    """
    newest = buffer.newest
    if newest is None or not 0 < pose.stamp_ns - newest.stamp_ns <= max_gap_ns:
        return None
    dt = (pose.stamp_ns - newest.stamp_ns) * 1e-9
    step = float(np.linalg.norm(pose.position - newest.item.position))
    turn = angle_between(pose, newest.item)
    speed, turn_rate = _explained(buffer, newest, pose)
    if step <= speed * dt + max_jump and turn <= turn_rate * dt + JUMP_TURN:
        return None
    return {"step_m": round(step, 3), "turn_rad": round(turn, 3), "dt_s": round(dt, 3), "speed": round(speed, 2)}


def speed_mismatch(buffer: EgoBuffer) -> float | None:
    """Speed of the poses minus that of the twist over the last half second, in m/s; None when it can't be told.

    Both as vectors in base_link: a twist in the world frame shows here although its length is right.
    """
    newest = buffer.newest
    if newest is None or newest.item.linear_velocity is None:
        return None
    first = buffer.entry(buffer.index_at_or_after(newest.stamp_ns - 500_000_000))
    dt = (newest.stamp_ns - first.stamp_ns) * 1e-9
    if dt < 0.05:
        return None
    middle = buffer.interpolated((first.stamp_ns + newest.stamp_ns) // 2)
    if middle is None or middle.linear_velocity is None:
        return None
    moved = matrix_from_quaternion(middle.orientation).T @ (newest.item.position - first.item.position) / dt
    return float(np.linalg.norm(moved - middle.linear_velocity))


def angle_between(first: EgoPose, second: EgoPose) -> float:
    """The angle of the rotation from one orientation to the other, in rad."""
    a, b = first.orientation, second.orientation
    b = -b if float(a @ b) < 0 else b
    return float(4 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b)))


def _explained(buffer: EgoBuffer, newest: Entry[EgoPose], pose: EgoPose) -> tuple[float, float]:
    """The speed in m/s and the turn rate in rad/s that twists and earlier steps vouch for."""
    velocities = [v for each in (newest.item, pose) if (v := each.linear_velocity) is not None]
    rates = [w for each in (newest.item, pose) if (w := each.angular_velocity) is not None]
    speed = max((float(np.linalg.norm(v)) for v in velocities), default=0.0)
    turn_rate = max((float(np.linalg.norm(w)) for w in rates), default=0.0)
    if len(buffer) < 2:
        return (speed, turn_rate) if velocities else (np.inf, np.inf)
    before = buffer.entry(len(buffer) - 2)
    dt = (newest.stamp_ns - before.stamp_ns) * 1e-9
    moved = float(np.linalg.norm(newest.item.position - before.item.position)) / dt
    turned = angle_between(newest.item, before.item) / dt
    return max(speed, moved), max(turn_rate, turned)
