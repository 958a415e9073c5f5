"""The data of one tick. Frozen, SI units, stamps in integer nanoseconds of the node's clock.

Frames: *odom* is the odometry's world frame; *ego* is base_link at t0, on the ground below the rear axle, x forward,
y left, z up (REP-103, REP-105).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FRAMES_PER_CAMERA = 4  # the model sees t0-0.3 s, t0-0.2 s, t0-0.1 s and t0
HISTORY_LENGTH = 16  # ego poses from t0-1.5 s to t0
HORIZON = 64  # predicted steps, t0+0.1 s to t0+6.4 s
STEP_NS = 100_000_000  # the model's time step


class SkipReason(str, Enum):
    """Why a tick gave no trajectory. One word everywhere; the order is the order in which they are reported."""

    DISABLED = "disabled"
    ENGINE_NOT_READY = "engine_not_ready"
    CLOCK_STOPPED = "clock_stopped"
    TIME_JUMP = "time_jump"
    ZERO_STAMP = "zero_stamp"
    STAMP_IN_FUTURE = "stamp_in_future"
    WAITING_FOR_CAMERA = "waiting_for_camera"
    CAMERA_STALE = "camera_stale"
    CAMERA_GAP = "camera_gap"
    CAMERA_SKEW = "camera_skew"
    BAD_IMAGE = "bad_image"
    WAITING_FOR_ODOMETRY = "waiting_for_odometry"
    ODOMETRY_STALE = "odometry_stale"
    BAD_ODOMETRY = "bad_odometry"
    ODOMETRY_JUMP = "odometry_jump"
    ODOMETRY_GAP = "odometry_gap"
    EGO_HISTORY_SHORT = "ego_history_short"
    ENGINE_BUSY = "engine_busy"
    ENGINE_ERROR = "engine_error"
    DEADLINE_MISSED = "deadline_missed"
    BAD_OUTPUT = "bad_output"
    RESULT_TOO_OLD = "result_too_old"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, eq=False)
class Frame:
    """One camera image as it was received, not decoded.

    `data` holds the message's bytes: a compressed file (`encoding` "jpeg", "png", ...) or raw rows of `step` bytes in
    a sensor_msgs encoding ("rgb8", "yuv422_yuy2", ...). `serial` is unique in this process and never used again, so
    that whatever was computed for a frame can be kept under it; a stamp can't serve for that.
    """

    serial: int
    camera: int  # the model's camera index, 0 to 6
    stamp_ns: int
    data: bytes | memoryview | NDArray[np.uint8]
    encoding: str
    height: int = 0  # pixels; 0 when only the compressed data know
    width: int = 0
    step: int = 0  # bytes per row of raw data; 0 for compressed data
    is_bigendian: bool = False


@dataclass(frozen=True, eq=False)
class EgoPose:
    """A pose of base_link in the odometry's frame, with its twist in base_link."""

    stamp_ns: int
    position: Array  # [3] m
    orientation: Array  # [4] unit quaternion x, y, z, w
    linear_velocity: Array | None = None  # [3] m/s in base_link; None when the source gives no twist
    angular_velocity: Array | None = None  # [3] rad/s in base_link


@dataclass(frozen=True, eq=False)
class Observation:
    """What the model is given for one tick."""

    t0_ns: int  # stamp of the newest frame of the anchor camera
    epoch: int  # raised by every reset; a result of an older epoch is dropped
    frames: Mapping[int, tuple[Frame, ...]]  # camera index -> 4 frames, oldest first; ordered by index
    history_xyz: Array  # [16, 3] m in ego, oldest first; the last is 0
    history_rotation: Array  # [16, 3, 3] ego <- base_link at that time; the last is the identity
    pose: EgoPose  # at t0, in the odometry's frame
    navigation: str | None = None


@dataclass(frozen=True)
class Skip:
    """Why there is no observation, with the numbers that led to it."""

    reason: SkipReason
    t0_ns: int | None = None  # of the tick that could not be; None when there is none yet
    numbers: Mapping[str, Any] = field(default_factory=dict)  # every reason that holds -> its numbers, JSON types

    def describe(self) -> str:
        """One line for logs: the reason and its numbers."""
        numbers = self.numbers.get(self.reason.value, {})
        listed = ", ".join(f"{name}={value}" for name, value in numbers.items())
        return f"{self.reason}: {listed}" if listed else str(self.reason)


@dataclass(frozen=True)
class Timings:
    """What one prediction cost: milliseconds per stage, by the host's clock or the device's, and what was reused."""

    stages_ms: Mapping[str, float] = field(default_factory=dict)  # "decode", "arrival", "vision", "prefill", ...
    frames_encoded: int = 0  # frames that went through the vision tower for this tick
    frames_reused: int = 0  # frames whose encoding was kept from earlier
    reasoning_tokens: int = 0  # tokens written one by one

    @property
    def total_ms(self) -> float:
        """The sum of all stages."""
        return float(sum(self.stages_ms.values()))


@dataclass(frozen=True, eq=False)
class Prediction:
    """K sampled trajectories of one tick, in ego."""

    xyz: Array  # [K, 64, 3] m; index 0 is t0 + 0.1 s
    rotation: Array  # [K, 64, 3, 3]
    actions: Array  # [K, 64, 2] acceleration m/s^2 and curvature 1/m
    speed: Array  # [K, 65] m/s from t0 on; may be negative
    reasoning: tuple[str, ...]  # K texts
    reasoning_token_ids: tuple[tuple[int, ...], ...]
    finish_reasons: tuple[str, ...]  # K of: stop, length, deadline, off, forced
    seed: int
    drafts_accepted: int = 0  # draft tokens that the model confirmed
    timings: Timings = field(default_factory=Timings)

    @property
    def num_samples(self) -> int:
        """K."""
        return int(self.xyz.shape[0])


@dataclass(frozen=True)
class SamplingOptions:
    """How a prediction is drawn. The same options, seed and observation give the same prediction."""

    num_samples: int = 1
    temperature: float = 0.6  # of the reasoning; 0 is greedy
    top_p: float = 0.98
    seed: int = 0
    max_reasoning_tokens: int = 256  # at the cap, <|cot_end|><|traj_future_start|> is forced
    deadline_ms: float | None = None  # the same is forced when so much time is used up since the first token
    reasoning: str = "shared"  # "shared", "independent", "off" or "given"
    given_reasoning: str = ""  # the text, with reasoning="given"
    draft_token_ids: tuple[int, ...] = ()  # the last tick's reasoning; a hint that never changes the result
    flow_steps: int | None = None  # Euler steps; None is the checkpoint's own
    noise_temperature: float = 1.0
    guidance_weight: float | None = None  # None or 1: no guidance; needs a navigation text


class AlpamayoError(Exception):
    """The base of this package's errors. Messages name the thing, the value and what would be right."""


class ConfigurationError(AlpamayoError):
    """A parameter, file or argument that can't be used as it is."""


class BadImageError(AlpamayoError):
    """An image that can't be decoded.

    Args:
        message: which frame, what is wrong, and what would be right.
        serial: of that frame, for the builder to choose it never again; None when no single one is to blame.
    """

    def __init__(self, message: str, serial: int | None = None) -> None:
        super().__init__(message)
        self.serial = serial


class EngineError(AlpamayoError):
    """The engine can't start, or failed at a tick."""


class EngineNotReadyError(EngineError):
    """The engine is away for a while: its process is being started anew."""
