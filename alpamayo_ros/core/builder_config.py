"""What an ObservationBuilder needs to know. Durations are in seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.types import ConfigurationError

MAX_CAMERA_INDEX = 6
MAX_RATE_HZ = 10.0  # the model's own time step

# field of BuilderConfig -> the lowest (exclusive unless 0) and highest value that makes sense, s
_DURATIONS = {
    "sync_tolerance": (0.0005, 0.1),
    "wait_timeout": (0.001, 10.0),
    "optional_wait": (0.0, 10.0),
    "future_tolerance": (0.0, 60.0),
    "max_input_age": (0.01, 3600.0),
    "max_odometry_age": (0.01, 3600.0),
    "max_odometry_gap": (0.01, 1.5),
    "odometry_time_offset": (-3600.0, 3600.0),
    "navigation_timeout": (0.0, 1e9),
}


@dataclass(frozen=True)
class CameraConfig:
    """One camera."""

    name: str
    index: int  # the model's camera index, 0 to 6
    required: bool = True  # False: left out of a tick when it is missing
    time_offset: float = 0.0  # s, added to its stamps


@dataclass(frozen=True)
class BuilderConfig:
    """The cameras, and how long and how exactly inputs are waited for.

    Raises:
        ConfigurationError: when made with a value that can't work; it names field, value, and what is right.
    """

    cameras: tuple[CameraConfig, ...]
    anchor: str  # name of the required camera whose stamps lead
    rate_hz: float = MAX_RATE_HZ  # at most this many ticks a second; one lattice step counts as 0.1 s
    sync_tolerance: float = 0.05  # how far a camera's frame may be from the anchor's
    wait_timeout: float = 0.15  # a tick still incomplete this long after its anchor frame came is skipped
    optional_wait: float = (
        0.05  # how long an otherwise complete tick waits for an optional camera that was there before
    )
    future_tolerance: float = 0.1  # messages with stamps further ahead of the clock are refused
    max_input_age: float = 0.5  # of the frames when a tick starts
    max_odometry_age: float = 0.4
    max_odometry_gap: float = 0.3  # poses further apart are not interpolated
    max_odometry_jump: float = 1.0  # m that a pose may be from where its speed leads
    odometry_time_offset: float = 0.0  # added to the poses' stamps
    standstill_padding: bool = True  # at standstill the first pose stands for missing older ones
    navigation_timeout: float = 30.0  # a navigation text is forgotten after this; 0: never
    child_to_base: tuple[float, ...] = (0.0,) * 6  # pose of base_link in the odometry's child frame: m and rad (rpy)

    def __post_init__(self) -> None:
        if not self.cameras:
            raise ConfigurationError("cameras is empty: give at least one CameraConfig")
        for field in ("name", "index"):
            values = [getattr(camera, field) for camera in self.cameras]
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise ConfigurationError(f"cameras: {field} {twice!r} is given twice: each camera needs its own")
        for camera in self.cameras:
            if not camera.name:
                raise ConfigurationError(f"cameras: the camera of index {camera.index} has name '': give it a name")
            if not (isinstance(camera.index, int) and 0 <= camera.index <= MAX_CAMERA_INDEX):
                raise ConfigurationError(
                    f"cameras.{camera.name}.index is {camera.index!r}: it must be a whole number from 0 to "
                    f"{MAX_CAMERA_INDEX}"
                )
            if not (_is_number(camera.time_offset) and abs(camera.time_offset) <= 3600):
                raise ConfigurationError(
                    f"cameras.{camera.name}.time_offset is {camera.time_offset!r}: it must be from -3600 to 3600 s"
                )
        required = [camera.name for camera in self.cameras if camera.required]
        if self.anchor not in required:
            raise ConfigurationError(
                f"anchor is {self.anchor!r}: it must be a required camera, one of {', '.join(required) or 'none'}"
            )
        if not (_is_number(self.rate_hz) and 0.01 <= self.rate_hz <= MAX_RATE_HZ):
            raise ConfigurationError(f"rate_hz is {self.rate_hz!r}: it must be from 0.01 to {MAX_RATE_HZ:g} Hz")
        for name, (low, high) in _DURATIONS.items():
            value = getattr(self, name)
            if not (_is_number(value) and low <= value <= high):
                raise ConfigurationError(f"{name} is {value!r}: it must be from {low:g} to {high:g} s")
        if not (_is_number(self.max_odometry_jump) and 0 < self.max_odometry_jump <= 1e6):
            raise ConfigurationError(f"max_odometry_jump is {self.max_odometry_jump!r}: it must be above 0 m")
        if not (len(self.child_to_base) == 6 and all(_is_number(value) for value in self.child_to_base)):
            raise ConfigurationError(
                f"child_to_base is {self.child_to_base!r}: it must be x, y, z in m, roll, pitch, yaw in rad"
            )
        by_index = tuple(sorted(self.cameras, key=lambda camera: camera.index))
        object.__setattr__(self, "cameras", by_index)

    @property
    def mounting(self) -> Mounting:
        """`child_to_base` as a pose."""
        return Mounting.from_xyz_rpy(self.child_to_base)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
