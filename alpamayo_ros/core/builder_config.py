"""What the observation builder has to know about a rig."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from alpamayo_ros.core.types import ConfigurationError

MAX_CAMERA_INDEX = 6


@dataclass(frozen=True)
class CameraConfig:
    """One camera."""

    name: str
    index: int  # the model's camera index, 0 to 6
    required: bool = True  # False: left out of a tick in which it is missing
    time_offset: float = 0.0  # s, added to its stamps


@dataclass(frozen=True)
class BuilderConfig:
    """A rig and its tolerances. Durations in seconds."""

    cameras: tuple[CameraConfig, ...]
    anchor: str  # name of the camera that sets the rhythm; a required one
    rate_hz: float = 10.0  # at most this many ticks a second, counted by t0
    sync_tolerance: float = 0.05  # of an anchor frame to its lattice point, and of a side frame to the anchor's
    wait_timeout: float = 0.15  # after its anchor frame came, an incomplete tick is skipped
    future_tolerance: float = 0.1  # stamps further ahead of the clock are refused
    max_input_age: float = 0.5  # of a camera's newest frame when a tick starts
    max_odometry_age: float = 0.4  # of the newest pose when a tick starts
    max_odometry_gap: float = 0.3  # between two poses that are interpolated
    max_odometry_jump: float = 1.0  # m that a pose may be off from what speed explains
    odometry_time_offset: float = 0.0  # added to its stamps
    standstill_padding: bool = True  # at standstill the first pose stands for the missing older ones
    navigation_timeout: float = 30.0  # after which a navigation text is forgotten; 0: never

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ConfigurationError("; ".join(problems))

    def _problems(self) -> list[str]:
        names = [camera.name for camera in self.cameras]
        required = [camera.name for camera in self.cameras if camera.required]
        problems = [f"two cameras are called {name!r}" for name, n in Counter(names).items() if n > 1]
        indices = Counter(camera.index for camera in self.cameras)
        problems += [f"{n} cameras have the index {index}; each needs its own" for index, n in indices.items() if n > 1]
        problems += [
            f"camera {camera.name!r} has the index {camera.index}; it has to be 0 to {MAX_CAMERA_INDEX}"
            for camera in self.cameras
            if not 0 <= camera.index <= MAX_CAMERA_INDEX
        ]
        if self.anchor not in required:
            problems.append(
                f"anchor is {self.anchor!r}; it has to be a required camera: {', '.join(required) or 'none'}"
            )
        positive = (
            "rate_hz",
            "sync_tolerance",
            "wait_timeout",
            "max_input_age",
            "max_odometry_age",
            "max_odometry_gap",
        )
        for name in (*positive, "max_odometry_jump"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                problems.append(f"{name} is {value}; it has to be above 0")
        for name in ("future_tolerance", "navigation_timeout"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                problems.append(f"{name} is {value}; it has to be 0 or more")
        return problems
