"""A drive of the expert driver as a recording has it: poses, twist, pictures of four cameras. Deterministic by seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.rotation import rotations_about_z
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.recording import Stamps, Track
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sim.driver import CRUISE
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.world import LONGEST, SHORTEST, World

START_NS = 1_000_000_000_000_000_000
SECOND = 1_000_000_000
IMAGE_HZ, ODOMETRY_HZ = 10, 50
LONGEST_S = 0.9 * LONGEST / CRUISE


@dataclass(frozen=True, eq=False)
class SyntheticDrive:
    """What was driven. The world is odom: the vehicle starts at its origin, along x."""

    world: World
    cameras: dict[str, CameraModel]
    track: Track  # 50 Hz
    along: Array  # [N] m along the route, at each of the track's poses
    navigation: tuple[str | None, ...]  # [N]

    @property
    def image_stamps_ns(self) -> Stamps:
        """10 Hz; each is the stamp of a pose too."""
        return self.track.stamps_ns[:: ODOMETRY_HZ // IMAGE_HZ]

    def images(self) -> Iterator[tuple[int, str, NDArray[np.uint8]]]:
        """Stamp (ns), camera and picture [H, W, 3] RGB, in order of time."""
        renderer = Renderer(self.world, self.cameras)
        journey = Journey(self.world)
        for number, stamp in enumerate(map(int, self.image_stamps_ns)):
            for camera, picture in renderer.draw(journey, number).items():
                yield stamp, camera, picture
            for _ in range(ODOMETRY_HZ // IMAGE_HZ):
                journey.drive()


def synthetic_drive(duration_s: float, seed: int, *, width: int = 320, height: int = 180) -> SyntheticDrive:
    """Drive for so long in the world of that seed, undisturbed.

    Raises:
        ConfigurationError: a duration, seed or size that can't be.
    """
    if not 0 < duration_s <= LONGEST_S:
        raise ConfigurationError(f"a drive of {duration_s} s, expected more than 0 and at most {LONGEST_S:.0f}")
    if width < 16 or height < 16:
        raise ConfigurationError(f"pictures of {width}x{height} pixels, expected at least 16x16")
    world = World.random(seed, max(CRUISE * duration_s, SHORTEST))
    journey = Journey(world)
    count = round(duration_s * ODOMETRY_HZ) + 1
    moved, along, navigation = np.empty((count, 5)), np.empty(count), list[str | None]()
    for number in range(count):
        vehicle = journey.vehicle
        moved[number] = *vehicle[:3], vehicle.speed, vehicle.yaw_rate
        along[number] = journey.along
        navigation.append(journey.navigation)
        journey.drive()
    none = np.zeros(count)
    track = Track(
        stamps_ns=START_NS + np.arange(count, dtype=np.int64) * (SECOND // ODOMETRY_HZ),
        position=np.column_stack([moved[:, :2], none]),
        rotation=rotations_about_z(moved[:, 2]),
        linear=np.column_stack([moved[:, 3], none, none]),
        angular=np.column_stack([none, none, moved[:, 4]]),
    )
    return SyntheticDrive(world, rig(width, height), track, along, tuple(navigation))
