"""A short drive along a random road: poses, and what four cameras see. Deterministic by seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.rotation import matrix_from_rpy
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.recording import Stamps, Track
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sim.road import Road
from alpamayo_ros.sim.scene import LANE_WIDTH, Scene

START_NS = 1_000_000_000_000_000_000
SECOND = 1_000_000_000
IMAGE_HZ, ODOMETRY_HZ = 10, 50
LATERAL = -LANE_WIDTH / 2  # m left of the center line: the middle of the right lane

FASTEST, SLOWEST = 13.0, 3.0  # m/s
SIDEWAYS, SPEEDING_UP, BRAKING = 2.0, 1.2, 1.8  # m/s^2 that the driver allows

# Name: horizontal field of view, position in m, yaw: as on NVIDIA's PhysicalAI rig, roughly.
RIG = {
    "cross_left": (120.0, (1.9, 0.9, 1.1), 60.0),
    "front_wide": (120.0, (1.7, 0.0, 1.5), 0.0),
    "cross_right": (120.0, (1.9, -0.9, 1.1), -60.0),
    "front_tele": (30.0, (1.7, 0.1, 1.5), 0.0),
}


@dataclass(frozen=True, eq=False)
class SyntheticDrive:
    """What was driven. The world is odom: the vehicle starts at its origin, along x."""

    road: Road
    cameras: dict[str, CameraModel]
    track: Track  # 50 Hz
    along: Array  # [N] m, the distance along the road's center line at each of the track's poses
    seed: int

    @property
    def image_stamps_ns(self) -> Stamps:
        """10 Hz; each is the stamp of a pose too."""
        return self.track.stamps_ns[:: ODOMETRY_HZ // IMAGE_HZ]

    def images(self) -> Iterator[tuple[int, str, NDArray[np.uint8]]]:
        """Stamp (ns), camera and picture [H, W, 3] RGB, in order of time."""
        scene = Scene(self.road, self.cameras, self.seed)
        for number in range(0, len(self.along), ODOMETRY_HZ // IMAGE_HZ):
            position, along = self.track.position[number, :2], float(self.along[number])
            for camera in self.cameras:
                picture = scene.draw(camera, position, float(self.road.heading_at(along)), along)
                yield int(self.track.stamps_ns[number]), camera, picture


def synthetic_drive(duration_s: float, seed: int, *, width: int = 320, height: int = 180) -> SyntheticDrive:
    """Drive for so long on the road of that seed, in the middle of its right lane, slower in curves.

    Raises:
        ConfigurationError: a duration or size that can't be.
    """
    if not 0 < duration_s <= 3600:
        raise ConfigurationError(f"a drive of {duration_s} s, expected more than 0 and at most 3600")
    if width < 16 or height < 16:
        raise ConfigurationError(f"pictures of {width}x{height} pixels, expected at least 16x16")
    road = Road.random(length=FASTEST * duration_s + 300, seed=seed, start=(0.0, -LATERAL))
    stretch = 1 - road.curvature * LATERAL  # m of the lane's middle per m of the center line
    curvature = road.curvature / stretch  # of the lane's middle
    speed = _speed_profile(curvature, np.diff(road.distance) * (stretch[1:] + stretch[:-1]) / 2)
    pace = stretch / speed  # s per m of the center line
    time = np.concatenate([[0.0], np.cumsum((pace[1:] + pace[:-1]) / 2 * np.diff(road.distance))])

    times = np.arange(round(duration_s * ODOMETRY_HZ) + 1) / ODOMETRY_HZ
    along = np.interp(times, time, road.distance)
    yaw, none = road.heading_at(along), np.zeros(len(times))
    speeds, bends = np.interp(along, road.distance, speed), np.interp(along, road.distance, curvature)
    track = Track(
        stamps_ns=START_NS + np.arange(len(times), dtype=np.int64) * (SECOND // ODOMETRY_HZ),
        position=np.column_stack([road.points(along, LATERAL), none]),
        rotation=np.array([matrix_from_rpy(0.0, 0.0, angle) for angle in yaw]),
        linear=np.column_stack([speeds, none, none]),
        angular=np.column_stack([none, none, speeds * bends]),
    )
    return SyntheticDrive(road, _rig(width, height), track, along, seed)


def _speed_profile(curvature: Array, steps: Array) -> Array:
    """The fastest speeds [N] m/s that keep to the limits, on a path with N-1 steps in m."""
    speed = np.clip(np.sqrt(SIDEWAYS / np.maximum(np.abs(curvature), 1e-6)), SLOWEST, FASTEST)
    for i in range(1, len(speed)):
        speed[i] = min(speed[i], np.sqrt(speed[i - 1] ** 2 + 2 * SPEEDING_UP * steps[i - 1]))
    for i in range(len(speed) - 2, -1, -1):
        speed[i] = min(speed[i], np.sqrt(speed[i + 1] ** 2 + 2 * BRAKING * steps[i]))
    return speed


def _rig(width: int, height: int) -> dict[str, CameraModel]:
    cameras = {}
    for name, (view, position, yaw) in RIG.items():
        focal = width / 2 / np.tan(np.radians(view / 2))
        center = ((width - 1) / 2, (height - 1) / 2)
        rotation = matrix_from_rpy(0.0, 0.0, np.radians(yaw))
        cameras[name] = CameraModel(
            width, height, focal, focal, *center, position=np.array(position), rotation=rotation
        )
    return cameras
