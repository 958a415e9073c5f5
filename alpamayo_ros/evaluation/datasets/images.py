"""Folders of images, a file of times and a file of poses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import EncodedImage, RecordedCamera, RecordedDrive, pose_matrix
from alpamayo_ros.evaluation.recording import (
    Stamps,
    base_poses,
    camera_poses_in_ros_axes,
    list_images,
    read_image_file,
    read_kitti_poses,
    read_times,
    read_tum_poses,
    track_from_poses,
)


@dataclass(frozen=True)
class PoseFile:
    """Where the poses are, and what they mean."""

    path: Path
    form: str  # "kitti" or "tum"
    axes: str  # "camera" (x right, y down, z forward) or "ros" (x forward, y left, z up)


def read_image_folders(cameras: dict[str, Path], times: Path, poses: PoseFile, mounting: Mounting) -> RecordedDrive:
    """The drive that folders of images, a file of times and a file of poses hold.

    Args:
        cameras: a folder by each camera's name; the n-th image of each, by name, belongs to the n-th time.
        times: a time per line, in seconds.
        poses: of the first camera; kitti's have the times of `times`, tum's their own.
        mounting: where the first camera is in base_link.

    Raises:
        ConfigurationError: something is missing or can't be read; names the file, the line and what was expected.
    """
    files = {name: list_images(folder) for name, folder in cameras.items()}
    stamps = read_times(times)
    for name, images in files.items():
        if len(images) > len(stamps):
            raise ConfigurationError(
                f"camera {name} has {len(images)} images, but {times} only {len(stamps)} times; "
                "expected a time for each image"
            )
    first = next(iter(files))
    recorded = tuple(
        RecordedCamera(name, stamps[: len(images)], partial(image_files, images), mounting if name == first else None)
        for name, images in files.items()
    )
    return RecordedDrive(recorded, track_from_poses(*_poses(poses, stamps, times, mounting)))


def image_files(files: Sequence[Path]) -> Iterator[EncodedImage]:
    """The images, one after the other."""
    return map(read_image_file, files)


def named_folders(arguments: Sequence[str]) -> dict[str, Path]:
    """A command line's NAME=FOLDER, once per camera.

    Raises:
        ConfigurationError: it is none, or a name comes twice.
    """
    folders: dict[str, Path] = {}
    for argument in arguments:
        name, _, folder = argument.partition("=")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or not folder:
            raise ConfigurationError(
                f"--camera {argument}: expected NAME=FOLDER, the name of letters, digits and underscores"
            )
        if name in folders:
            raise ConfigurationError(f"--camera {name} is given twice; expected each name once")
        folders[name] = Path(folder)
    return folders


def _poses(file: PoseFile, stamps: Stamps, times: Path, mounting: Mounting) -> tuple[Stamps, Array]:
    """Stamps [N] in the clock of `stamps`, and poses [N, 4, 4] of base_link in odom."""
    if file.form == "tum":
        stamps, poses = read_tum_poses(file.path)
    else:
        poses = read_kitti_poses(file.path)
        if len(poses) > len(stamps):
            raise ConfigurationError(
                f"{file.path} has {len(poses)} poses, but {times} only {len(stamps)} times; "
                "expected a time for each pose"
            )
        stamps = stamps[: len(poses)]
    mounted = pose_matrix(mounting.position, mounting.rotation)
    if file.axes == "camera":
        poses = mounted @ camera_poses_in_ros_axes(poses)  # the world moves to where base_link starts
    return stamps, base_poses(poses, mounted)
