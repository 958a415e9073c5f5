"""KITTI's raw recordings, synchronized and rectified: a folder per drive, with OXTS's GPS and IMU.

Formats: the raw data's devkit (cvlibs.net/datasets/kitti/raw_data.php); its dataformat.txt names OXTS's 30 values.
"""

from __future__ import annotations

import datetime
from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_rpy
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import RecordedCamera, RecordedDrive, is_rotation, pose_matrix
from alpamayo_ros.evaluation.datasets.images import image_files
from alpamayo_ros.evaluation.datasets.kitti_calibration import read_calibration, rectified_camera, row, stereo_pair
from alpamayo_ros.evaluation.recording import Stamps, base_poses, list_images, track_from_poses

# Figure 3 of "Vision meets Robotics: The KITTI Dataset" (IJRR 2013): the GPS/IMU is 0.05 m behind the rear axle, 0.32 m
# left of the middle and 0.93 m above the ground. x forward, y left, z up, as base_link.
IMU_IN_BASE = (-0.05, 0.32, 0.93)
EARTH_RADIUS = 6378137.0  # m, as in the devkit's Mercator projection
OXTS_VALUES = 30


def is_kitti_raw(source: Path) -> bool:
    """Whether it is the folder of a raw drive."""
    return (source / "oxts").is_dir()


def read_kitti_raw(source: Path) -> RecordedDrive:
    """A drive. odom has its origin at the first pose, x to the east and y to the north.

    Args:
        source: the drive's folder, such as 2011_09_26/2011_09_26_drive_0001_sync; the calibration lies beside it.

    Raises:
        ConfigurationError: something is missing or can't be read.
    """
    base_from_imu = pose_matrix(np.array(IMU_IN_BASE), np.eye(3))
    stamps, imu = _oxts_poses(source / "oxts")
    poses = base_poses(imu, base_from_imu)
    poses[:, :3, 3] -= poses[0, :3, 3].copy()
    file = source.parent / "calib_cam_to_cam.txt"
    rows = read_calibration(file)
    rectify = row(rows, "R_rect_00", 9, file).reshape(3, 3)
    cam_from_imu = _transform(source.parent / "calib_velo_to_cam.txt") @ _transform(
        source.parent / "calib_imu_to_velo.txt"
    )
    rectified_from_imu = pose_matrix(np.zeros(3), rectify) @ cam_from_imu
    base_from_rectified = base_from_imu @ np.linalg.inv(rectified_from_imu)
    cameras = []
    for name, (number, folder) in stereo_pair(source, digits=2).items():
        files = list_images(folder / "data")
        times = _read_stamps(folder / "timestamps.txt")
        if len(times) != len(files):
            raise ConfigurationError(f"{folder} has {len(files)} images and {len(times)} times; expected one for each")
        place = rectified_camera(row(rows, f"P_rect_{number:02d}", 12, file), base_from_rectified, files[0])
        cameras.append(RecordedCamera(name, times, partial(image_files, files), place))
    return RecordedDrive(tuple(cameras), track_from_poses(stamps, poses))


def _oxts_poses(folder: Path) -> tuple[Stamps, Array]:
    """Stamps [N] and poses [N, 4, 4] of the IMU, east, north and up; with Mercator's projection as in the devkit."""
    stamps = _read_stamps(folder / "timestamps.txt")
    files = sorted((folder / "data").glob("*.txt"))
    if len(files) != len(stamps):
        raise ConfigurationError(f"{folder} has {len(files)} files of data and {len(stamps)} times")
    values = np.array([_oxts_values(file) for file in files])
    latitude, longitude, altitude = np.radians(values[:, 0]), np.radians(values[:, 1]), values[:, 2]
    scale = np.cos(latitude[0])
    position = np.column_stack(
        [
            scale * EARTH_RADIUS * longitude,
            scale * EARTH_RADIUS * np.log(np.tan(np.pi / 4 + latitude / 2)),
            altitude,
        ]
    )
    rotation = np.array([matrix_from_rpy(*angles) for angles in values[:, 3:6]])
    return stamps, pose_matrix(position, rotation)


def _oxts_values(file: Path) -> list[float]:
    """Latitude and longitude in degrees, altitude in m, roll, pitch and yaw (0 is east) in rad, and the rest."""
    try:
        values = [float(word) for word in file.read_text(encoding="utf-8").split()]
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}; expected {OXTS_VALUES} numbers") from error
    if len(values) != OXTS_VALUES or not np.isfinite(values[:6]).all() or not abs(values[0]) < 89:
        raise ConfigurationError(
            f"{file}: {len(values)} values beginning with {values[:6]}; expected {OXTS_VALUES}: latitude, longitude, "
            "altitude, roll, pitch, yaw, ..."
        )
    return values


def _read_stamps(file: Path) -> Stamps:
    """A date and time a line, in ns as if it were UTC."""
    try:
        stamps = np.array([_stamp(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()])
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{file} can't be read: {error}; expected lines such as 2011-09-26 13:02:25.964389445"
        ) from error
    if not len(stamps) or (np.diff(stamps) <= 0).any():
        raise ConfigurationError(f"{file}: expected times, each later than the one before")
    return stamps


def _stamp(line: str) -> int:
    whole, _, fraction = line.strip().partition(".")
    seconds = datetime.datetime.fromisoformat(whole).replace(tzinfo=datetime.timezone.utc).timestamp()
    return round(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9] or 0)


def _transform(file: Path) -> Array:
    """[4, 4] from the rows R and T of a calibration file."""
    rows = read_calibration(file)
    rotation = row(rows, "R", 9, file).reshape(3, 3)
    if not is_rotation(rotation):
        raise ConfigurationError(f"{file}: R is no rotation")
    return pose_matrix(row(rows, "T", 3, file), rotation)
