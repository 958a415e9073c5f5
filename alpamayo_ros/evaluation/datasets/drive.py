"""A recorded drive, whatever it was recorded as: what the cameras saw, and how the vehicle moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.recording import Stamps, Track
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA, CameraModel

SECOND = 1_000_000_000
UNIX_TIME = 100_000_000 * SECOND  # earlier stamps are counted from the recording's start
DEFAULT_START = 1_000_000_000 * SECOND  # which is put here: in ROS a stamp of 0 means that there is none

EncodedImage = tuple[bytes, str]  # a JPEG or PNG file, and CompressedImage.format


@dataclass(frozen=True, eq=False)
class RecordedCamera:
    """One camera's images, read when they are asked for."""

    name: str
    stamps_ns: Stamps  # [N], increasing
    images: Callable[[], Iterator[EncodedImage]]  # N of them, in the order of the stamps
    place: CameraModel | Mounting | None = None  # in base_link, x being where it looks; with intrinsics, if known


@dataclass(frozen=True, eq=False)
class RecordedDrive:
    """A drive, and what its user should know of it."""

    cameras: tuple[RecordedCamera, ...]
    track: Track
    notes: tuple[str, ...] = ()

    @property
    def first_ns(self) -> int:
        """The earliest stamp."""
        return int(min([self.track.stamps_ns[0], *(camera.stamps_ns[0] for camera in self.cameras)]))

    def beginning_at(self, start_ns: int | None) -> RecordedDrive:
        """The same with all stamps moved together.

        Args:
            start_ns: the new stamp of the earliest image or pose. None: stamps stay as they are where they are Unix
                times; others, which count from some other time, count from 1000000000 s.

        Raises:
            ConfigurationError: the drive would begin at 0 or before.
        """
        first = self.first_ns
        as_it_is = 0 if first >= UNIX_TIME else DEFAULT_START
        shift = as_it_is if start_ns is None else start_ns - first
        if first + shift <= 0:
            raise ConfigurationError(
                f"the drive would begin at {(first + shift) / SECOND} s; expected more than 0 s, which means no stamp "
                "in ROS"
            )
        cameras = tuple(replace(camera, stamps_ns=camera.stamps_ns + shift) for camera in self.cameras)
        return replace(self, cameras=cameras, track=replace(self.track, stamps_ns=self.track.stamps_ns + shift))

    def thinned(self, every: int) -> RecordedDrive:
        """With each camera's first image and every n-th after it."""
        if every < 1:
            raise ConfigurationError(f"every {every}th image: expected at least 1")
        return self if every == 1 else replace(self, cameras=tuple(_thinned(each, every) for each in self.cameras))


def _thinned(camera: RecordedCamera, every: int) -> RecordedCamera:
    return replace(
        camera,
        stamps_ns=camera.stamps_ns[::every],
        images=lambda: islice(camera.images(), 0, None, every),
    )


def camera_place(base_from_optical: Array) -> Mounting:
    """Where a camera is in base_link, from the pose [4, 4] of its optical frame (x right, y down, z forward) there."""
    rotation = base_from_optical[:3, :3] @ OPTICAL_IN_CAMERA.T
    return Mounting(base_from_optical[:3, 3].copy(), rotation)


def pose_matrix(position: Array, rotation: Array) -> Array:
    """[..., 4, 4] from positions [..., 3] m and rotations [..., 3, 3]."""
    pose = np.zeros((*np.shape(position)[:-1], 4, 4))
    pose[..., :3, :3], pose[..., :3, 3], pose[..., 3, 3] = rotation, position, 1
    return pose


def is_rotation(matrix: Array) -> bool:
    """Whether a matrix [3, 3] turns and does nothing else, to 1e-3."""
    finite = np.isfinite(matrix).all()
    return bool(finite and np.abs(matrix @ matrix.T - np.eye(3)).max() < 1e-3 and np.linalg.det(matrix) > 0)


def without_close_ones(stamps_ns: Stamps, poses: Array, spacing_ns: int) -> tuple[Stamps, Array]:
    """Poses [N, 4, 4] sorted by their stamps, each at least so long after the one before.

    Velocities come from differences, and a millimetre of noise between poses a millisecond apart is 1 m/s.
    """
    order = np.argsort(stamps_ns, kind="stable")
    kept: list[int] = []
    for at in order:
        if not kept or stamps_ns[at] - stamps_ns[kept[-1]] >= spacing_ns:
            kept.append(int(at))
    return stamps_ns[kept], poses[kept]
