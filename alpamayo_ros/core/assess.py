"""Whether the inputs have all that a tick needs, and what they lack if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from alpamayo_ros.core.builder_config import BuilderConfig
from alpamayo_ros.core.camera import CameraInput
from alpamayo_ros.core.ego import EgoHistory
from alpamayo_ros.core.lattice import Point
from alpamayo_ros.core.pending import PendingTicks
from alpamayo_ros.core.rig_inputs import RigInputs
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, Frame, SkipReason

Numbers = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Assessment:
    """What the inputs give to one tick."""

    frames: Mapping[int, tuple[Frame, ...]]  # by camera index
    history: EgoHistory | None
    lacking: Mapping[SkipReason, Numbers]  # every reason that holds


class Assessor:
    """Looks at the inputs of a builder, and changes nothing. Times in ns of the node's clock.

    Args:
        inputs: what has come.
        pending: knows how long each tick has waited.
        config: of the builder.
    """

    def __init__(self, inputs: RigInputs, pending: PendingTicks, config: BuilderConfig) -> None:
        self._cameras, self._anchor, self._odometry = inputs.cameras, inputs.anchor, inputs.odometry
        self._pending = pending
        self._wait_ns = round(config.wait_timeout * 1e9)
        self._optional_wait_ns = round(config.optional_wait * 1e9)

    def still_waits(self, point: Point, now_ns: int) -> bool:
        """Whether its tick may still become complete, by the time that it has waited."""
        return self._pending.waited_ns(point, now_ns) < self._wait_ns

    def is_complete(self, points: Sequence[Point], at: int, now_ns: int) -> bool:
        """Whether the tick of point number `at` has all that it waits for. Cheap where it hasn't."""
        newest_pose_ns = self._odometry.buffer.newest_ns
        if newest_pose_ns is None or newest_pose_ns < points[at].stamp_ns:
            return False
        if (
            at + 1 < FRAMES_PER_CAMERA
            or points[at].index - points[at + 1 - FRAMES_PER_CAMERA].index >= FRAMES_PER_CAMERA
        ):
            return False
        waited_ns = self._pending.waited_ns(points[at], now_ns)
        others = (camera for camera in self._cameras.values() if camera is not self._anchor)
        return all(self._has_what_it_waits_for(camera, points, at, waited_ns) for camera in others)

    def assess(self, points: Sequence[Point], at: int, now_ns: int) -> Assessment:
        """What there is for the tick of point number `at` (negative: there is none), and all that it lacks."""
        frames: dict[int, tuple[Frame, ...]] = {}
        lacking: dict[SkipReason, dict[str, Numbers]] = {}
        anchor_lag = self._anchor.stream.receive_lag
        for name, camera in self._cameras.items():
            finding = camera.find(points, at, now_ns, anchor_lag)
            if not finding.reasons and finding.frames:
                frames[camera.config.index] = finding.frames
            elif camera.config.required:
                for reason, numbers in finding.reasons.items():
                    lacking.setdefault(reason, {})[name] = numbers
        reasons: dict[SkipReason, Numbers] = {reason: _by_camera(found) for reason, found in lacking.items()}
        history = self._odometry.find(points[at].stamp_ns if at >= 0 else None, now_ns)
        if isinstance(history, EgoHistory):
            return Assessment(frames, history, reasons)
        return Assessment(frames, None, {**reasons, **history.reasons})

    def _has_what_it_waits_for(self, camera: CameraInput, points: Sequence[Point], at: int, waited_ns: int) -> bool:
        choices = camera.choices(points, at)
        settled = all(choice.settled for choice in choices)
        if camera.config.required:
            there = all(choice.frame is not None for choice in choices)
            return there and (settled or waited_ns >= self._wait_ns)
        was_there = all(choice.frame is not None for choice in choices[:-1])
        return not was_there or settled or waited_ns >= self._optional_wait_ns


def _by_camera(found: Mapping[str, Numbers]) -> dict[str, Any]:
    """The numbers of one reason: the cameras, and of each number one per camera."""
    numbers: dict[str, Any] = {"cameras": list(found)}
    for key in dict.fromkeys(key for each in found.values() for key in each):
        numbers[key] = [each.get(key) for each in found.values()]
    return numbers
