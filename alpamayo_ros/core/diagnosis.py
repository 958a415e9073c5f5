"""Why a tick can't be: every skip reason that holds, with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.ego import HISTORY_NS, EgoBuffer, HistoryFault
from alpamayo_ros.core.frames import CameraBuffer
from alpamayo_ros.core.tick import Tick
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, Skip, SkipReason

Reasons = Mapping[SkipReason, dict[str, Any]]
Finding = tuple[SkipReason, dict[str, Any]]

SKEW_SPREAD = 0.5  # offsets that differ by less than this part of the tolerance are one constant offset

HISTORY_FAULTS = {
    "behind": SkipReason.ODOMETRY_STALE,
    "gap": SkipReason.ODOMETRY_GAP,
    "short": SkipReason.EGO_HISTORY_SHORT,
}


def skip(reasons: Reasons, t0_ns: int | None) -> Skip:
    """The first of these reasons in the order of SkipReason, with the numbers of all."""
    ordered = [reason for reason in SkipReason if reason in reasons]
    return Skip(ordered[0], t0_ns, {reason.value: reasons[reason] for reason in ordered})


def camera_findings(
    config: BuilderConfig, cameras: Mapping[str, CameraBuffer], tick: Tick | None, now_ns: int
) -> Iterator[Finding]:
    """What is wrong with required cameras."""
    for camera in cameras.values():
        if not camera.required:
            continue
        if camera.refusal is not None:
            yield camera.refusal.reason, {"camera": camera.name, **camera.refusal.numbers}
        newest = camera.newest
        if newest is None:
            yield SkipReason.WAITING_FOR_CAMERA, {"camera": camera.name}
            continue
        age_s = (now_ns - newest.stamp_ns) * 1e-9
        if age_s > config.max_input_age:
            numbers = {"camera": camera.name, "age_s": round(age_s, 3), "max_input_age": config.max_input_age}
            yield SkipReason.CAMERA_STALE, numbers
        elif tick is None:
            yield SkipReason.CAMERA_GAP, {"camera": camera.name, "frames": len(camera), "needed": FRAMES_PER_CAMERA}
        elif not tick.has(camera):
            yield _missing_frames(config, camera, tick)
        if tick is not None and (sizes := frame_sizes(camera, tick)) and len(sizes) > 1:
            yield SkipReason.BAD_IMAGE, {"camera": camera.name, "sizes": [list(size) for size in sorted(sizes)]}


def odometry_findings(config: BuilderConfig, ego: EgoBuffer, tick: Tick | None, now_ns: int) -> Iterator[Finding]:
    """What is wrong with the odometry."""
    if ego.refusal is not None:
        yield ego.refusal.reason, ego.refusal.numbers
    newest = ego.newest
    if newest is None:
        yield SkipReason.WAITING_FOR_ODOMETRY, {}
        return
    age_s = (now_ns - newest.stamp_ns) * 1e-9
    if age_s > config.max_odometry_age:
        numbers = {"age_s": round(age_s, 3), "max_odometry_age": config.max_odometry_age}
        yield SkipReason.ODOMETRY_STALE, numbers
    if tick is None:
        return
    history = ego.history(tick.t0_ns, round(config.max_odometry_gap * 1e9), config.standstill_padding)
    if isinstance(history, HistoryFault):
        jumped = ego.jump is not None and tick.t0_ns - HISTORY_NS < ego.jump_ns <= tick.t0_ns
        if history.kind == "short" and jumped and ego.jump is not None:
            yield ego.jump.reason, ego.jump.numbers
        yield HISTORY_FAULTS[history.kind], dict(history.numbers)


def frame_sizes(camera: CameraBuffer, tick: Tick) -> set[tuple[int, int]]:
    """The (height, width) of a camera's raw frames in a tick; compressed ones are not known before decoding."""
    frames = [choice.frame for choice in tick.choices(camera) if choice is not None and choice.frame is not None]
    return {(frame.height, frame.width) for frame in frames if frame.height and frame.width}


def _missing_frames(config: BuilderConfig, camera: CameraBuffer, tick: Tick) -> Finding:
    """Why a camera has no frame in some set: a bad one was removed, it is always off by the same, or there is none."""
    choices = [choice for choice in tick.choices(camera) if choice is not None]
    lacking = [choice for choice in choices if choice.frame is None]
    tolerance_ns = round(config.sync_tolerance * 1e9)
    for choice in lacking:
        for stamp_ns, message in camera.bad_images.items():
            if abs(stamp_ns - choice.target_ns) <= tolerance_ns:
                return SkipReason.BAD_IMAGE, {"camera": camera.name, "stamp_ns": stamp_ns, "error": message}
    offsets = [choice.nearest_offset_ns for choice in choices if choice.nearest_offset_ns is not None]
    numbers: dict[str, Any] = {
        "camera": camera.name,
        "offsets_s": [round(offset * 1e-9, 3) for offset in offsets],
        "sync_tolerance": config.sync_tolerance,
    }
    all_beyond = len(lacking) == len(offsets) == FRAMES_PER_CAMERA and camera is not tick.anchor
    if all_beyond and np.ptp(offsets) <= SKEW_SPREAD * tolerance_ns:
        return SkipReason.CAMERA_SKEW, numbers
    missing = [round((choice.target_ns - tick.t0_ns) * 1e-9, 3) for choice in lacking]
    return SkipReason.CAMERA_GAP, {**numbers, "missing_at_s": missing}
