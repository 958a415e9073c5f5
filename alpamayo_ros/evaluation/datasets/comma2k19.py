"""comma2k19: segments of a minute, with a dash camera's video and its pose on the Earth for every frame.

Format: github.com/commaai/comma2k19. Poses are of the camera, in ECEF; its frame there is x forward, y right, z down.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import RecordedCamera, RecordedDrive, pose_matrix
from alpamayo_ros.evaluation.datasets.video import video_frames, video_size
from alpamayo_ros.evaluation.recording import base_poses, track_from_poses
from alpamayo_ros.sensors.camera_model import CameraModel

CAMERA = "front_wide"
VIDEO, POSES = "video.hevc", "global_pose"
# The data set doesn't say where the camera is in the car: at the windscreen, whose height openpilot takes to be 1.22 m.
# The distance from the rear axle is an estimate.
CAMERA_IN_BASE = (1.5, 0.0, 1.22, 0.0, 0.0, 0.0)
FOCAL, CENTER, SIZE = 910.0, (582.0, 437.0), (1164, 874)  # pixels; camera_intrinsics.txt of the data set's notebooks

FORWARD_LEFT_UP = np.diag([1.0, -1.0, -1.0])  # to x forward, y right, z down, and back
EQUATOR, POLE = 6378137.0, 6356752.3142  # m, the semi-axes of WGS 84


def read_comma2k19(source: Path, mounting: Mounting) -> RecordedDrive:
    """A segment. odom has its origin at the first pose, x to the east and y to the north.

    Args:
        source: the segment's folder, with video.hevc and global_pose.
        mounting: where the camera is in base_link.

    Raises:
        ConfigurationError: something is missing or can't be read.
    """
    times = _array(source, "frame_times", 1)
    positions = _array(source, "frame_positions", 3)
    orientations = _array(source, "frame_orientations", 4)
    if not len(times) == len(positions) == len(orientations):
        raise ConfigurationError(
            f"{source / POSES}: {len(times)} times, {len(positions)} positions and {len(orientations)} orientations; "
            "expected as many of each"
        )
    stamps = np.round(times[:, 0] * 1e9).astype(np.int64)
    if (np.diff(stamps) <= 0).any():
        raise ConfigurationError(f"{source / POSES / 'frame_times'}: expected times, each later than the one before")
    if np.linalg.norm(orientations, axis=1).min() < 1e-6:
        raise ConfigurationError(f"{source / POSES / 'frame_orientations'}: a quaternion is 0")
    local = _east_north_up(positions[0])
    rotation = local @ matrix_from_quaternion(orientations[:, [1, 2, 3, 0]]) @ FORWARD_LEFT_UP
    poses = base_poses(
        pose_matrix((positions - positions[0]) @ local.T, rotation),
        pose_matrix(mounting.position, mounting.rotation),
    )
    poses[:, :3, 3] -= poses[0, :3, 3].copy()
    video = source / VIDEO
    width, height = video_size(video)
    across, down = width / SIZE[0], height / SIZE[1]  # 1, but for a video that was made smaller
    model = CameraModel(
        *(width, height, FOCAL * across, FOCAL * down, CENTER[0] * across, CENTER[1] * down),
        position=mounting.position,
        rotation=mounting.rotation,
    )
    camera = RecordedCamera(CAMERA, stamps, partial(video_frames, video, len(stamps)), model)
    return RecordedDrive((camera,), track_from_poses(stamps, poses))


def _array(source: Path, name: str, columns: int) -> Array:
    """[N, columns] from a NumPy file without an ending."""
    file = source / POSES / name
    try:
        values = np.load(file, allow_pickle=False).astype(float)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}; expected a segment of comma2k19") from error
    values = values.reshape(len(values), -1) if values.ndim else values
    if values.ndim != 2 or values.shape[1] != columns or len(values) < 2 or not np.isfinite(values).all():
        raise ConfigurationError(f"{file}: shape {values.shape}, expected rows of {columns} finite numbers")
    return values


def _east_north_up(position: Array) -> Array:
    """Rotation [3, 3] from ECEF to east, north and up at a position [3] m near the ground: up is WGS 84's normal."""
    up = position / np.array([EQUATOR, EQUATOR, POLE]) ** 2
    up = up / np.linalg.norm(up)
    east = np.cross([0.0, 0.0, 1.0], up)
    east = east / np.linalg.norm(east)
    return np.stack([east, np.cross(up, east), up])
