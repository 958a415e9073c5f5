"""KITTI's odometry benchmark: sequences of rectified stereo images, and poses of the left gray camera.

Formats: the benchmark's devkit (cvlibs.net/datasets/kitti/eval_odometry.php).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import RecordedCamera, RecordedDrive, pose_matrix
from alpamayo_ros.evaluation.datasets.images import image_files
from alpamayo_ros.evaluation.datasets.kitti_calibration import read_calibration, rectified_camera, row, stereo_pair
from alpamayo_ros.evaluation.recording import (
    base_poses,
    camera_poses_in_ros_axes,
    list_images,
    read_kitti_poses,
    read_times,
    track_from_poses,
)
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA

# Figure 3 of "Vision meets Robotics: The KITTI Dataset" (IJRR 2013): the cameras are 1.65 m above the ground and 0.27 m
# before the Velodyne, which is 0.76 m before the rear axle.
CAMERA_IN_BASE = (1.03, 0.0, 1.65)


def is_kitti_odometry(source: Path) -> bool:
    """Whether it is the folder of a sequence, or of the benchmark, which has `sequences`."""
    return (source / "calib.txt").is_file() or (source / "sequences").is_dir()


def read_kitti_odometry(source: Path, sequence: str | None = None) -> RecordedDrive:
    """A sequence of the benchmark. odom is base_link at the first pose.

    Args:
        source: the benchmark's folder with `sequences` and `poses`, or the folder of one sequence.
        sequence: its name in `sequences`, such as "06"; needed where there are several.

    Raises:
        ConfigurationError: something is missing or can't be read.
    """
    folder = _sequence_folder(source, sequence)
    times = folder / "times.txt"
    stamps = read_times(times)
    poses = read_kitti_poses(_poses_file(folder))
    if len(poses) > len(stamps):
        raise ConfigurationError(f"{folder} has {len(poses)} poses, but {times} only {len(stamps)} times")
    mounted = pose_matrix(np.array(CAMERA_IN_BASE), np.eye(3))
    base = base_poses(mounted @ camera_poses_in_ros_axes(poses), mounted)
    base_from_rectified = pose_matrix(np.array(CAMERA_IN_BASE), OPTICAL_IN_CAMERA)
    calibration = folder / "calib.txt"
    rows = read_calibration(calibration)
    cameras = []
    for name, (number, images) in stereo_pair(folder, digits=1).items():
        files = list_images(images)
        if len(files) > len(stamps):
            raise ConfigurationError(f"{images} has {len(files)} images, but {times} only {len(stamps)} times")
        place = rectified_camera(row(rows, f"P{number}", 12, calibration), base_from_rectified, files[0])
        cameras.append(RecordedCamera(name, stamps[: len(files)], partial(image_files, files), place))
    return RecordedDrive(tuple(cameras), track_from_poses(stamps[: len(base)], base))


def _sequence_folder(source: Path, sequence: str | None) -> Path:
    sequences = source / "sequences"
    if not sequences.is_dir():
        if sequence is not None:
            raise ConfigurationError(f"sequence {sequence}: {source} is one sequence, and has no folder `sequences`")
        return source
    names = sorted(folder.name for folder in sequences.iterdir() if folder.is_dir())
    chosen = names[0] if sequence is None and len(names) == 1 else sequence
    if chosen not in names:
        raise ConfigurationError(f"sequence {chosen}: {sequences} has {', '.join(names) or 'none'}; choose one of them")
    return sequences / chosen


def _poses_file(folder: Path) -> Path:
    places = [folder / "poses.txt", folder.parent.parent / "poses" / f"{folder.name}.txt"]
    for place in places:
        if place.is_file():
            return place
    raise ConfigurationError(
        f"there are no poses of {folder}: looked for {' and '.join(map(str, places))}; the benchmark has them for "
        "sequences 00 to 10, as a download of their own"
    )
