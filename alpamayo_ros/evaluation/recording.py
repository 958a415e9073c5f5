"""Recordings that aren't bags yet: folders of images, files of times, files of poses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.rotation import matrix_from_quaternion, rotation_vector
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA
from alpamayo_ros.sensors.compressed import image_size

Stamps = NDArray[np.int64]
FARTHEST = 1e9  # m; coordinates of maps and of the whole Earth are below
LAST_STAMP = 2**31 * 1_000_000_000  # ns; the seconds of a stamp are an int32

AS_THEY_ARE = {".jpg": "jpeg", ".jpeg": "jpeg", ".png": "png"}
ENCODED = (".bmp", ".pgm", ".ppm", ".pnm", ".tif", ".tiff", ".webp")  # these become PNG: nothing is lost


@dataclass(frozen=True, eq=False)
class Track:
    """base_link's poses in odom, and its twist in base_link."""

    stamps_ns: Stamps  # [N], increasing
    position: Array  # [N, 3] m
    rotation: Array  # [N, 3, 3] odom <- base_link
    linear: Array  # [N, 3] m/s
    angular: Array  # [N, 3] rad/s


def list_images(folder: Path) -> list[Path]:
    """The folder's images by name, numbers in the names by their value.

    Raises:
        ConfigurationError: there is no such folder, or no image in it.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"there is no folder of images at {folder}")
    kinds = (*AS_THEY_ARE, *ENCODED)
    images = [file for file in folder.iterdir() if file.suffix.lower() in kinds]
    if not images:
        raise ConfigurationError(f"{folder} has no images; expected files ending in {', '.join(kinds)}")
    return sorted(images, key=lambda file: [(len(part), part) for part in re.findall(r"\d+|\D+", file.name)])


def read_image_file(file: Path) -> tuple[bytes, str]:
    """The bytes of a JPEG or PNG file as they are, or of another image as PNG; and the format, "jpeg" or "png".

    Raises:
        ConfigurationError: the file is no whole image.
    """
    data = file.read_bytes()
    form = AS_THEY_ARE.get(file.suffix.lower())
    if form is None:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED) if data else None
        if pixels is None:
            raise ConfigurationError(f"{file}: OpenCV can't decode its {len(data)} bytes; expected an intact image")
        return cv2.imencode(".png", pixels)[1].tobytes(), "png"
    try:
        image_size(data)
    except ValueError as error:
        raise ConfigurationError(f"{file}: {error}") from error
    return data, form


def read_times(file: Path) -> Stamps:
    """One time per line, in seconds; exact to the nanosecond.

    Raises:
        ConfigurationError: the file is missing or empty, or a line is no number or not later than the one before.
    """
    stamps = [_nanoseconds(words[0], file, line) for line, words in _rows(file, 1, "one time in seconds")]
    return _increasing(stamps, file)


def read_kitti_poses(file: Path) -> Array:
    """KITTI's odometry format: [N, 4, 4] from rows of 12 numbers, the upper 3x4 of world <- camera.

    Raises:
        ConfigurationError: the file is missing or empty, or a row isn't 12 numbers with a rotation in them.
    """
    rows = [_numbers(words, file, line) for line, words in _rows(file, 12, "a 3x4 matrix, row by row")]
    poses = np.tile(np.eye(4), (len(rows), 1, 1))
    poses[:, :3] = np.array(rows).reshape(-1, 3, 4)
    rotation = poses[:, :3, :3]
    error = np.abs(rotation @ rotation.swapaxes(1, 2) - np.eye(3)).max(axis=(1, 2))
    bad = np.flatnonzero((error > 1e-3) | (np.linalg.det(rotation) < 0))
    if bad.size:
        raise ConfigurationError(f"{file}: pose {bad[0] + 1} of {len(rows)} has no rotation in its left 3x3 part")
    return poses


def read_tum_poses(file: Path) -> tuple[Stamps, Array]:
    """TUM's format: rows of time (s), position x y z (m), orientation x y z w, to stamps [N] and poses [N, 4, 4].

    Raises:
        ConfigurationError: the file is missing or empty, a row isn't 8 numbers, a quaternion is 0, or times don't grow.
    """
    what = "time x y z qx qy qz qw"
    stamps, poses = [], []
    for line, words in _rows(file, 8, what):
        stamps.append(_nanoseconds(words[0], file, line))
        values = np.array(_numbers(words[1:], file, line))
        if np.linalg.norm(values[3:]) < 1e-6:
            raise ConfigurationError(f"{file}, line {line}: the quaternion is 0; expected {what}")
        pose = np.eye(4)
        pose[:3, 3] = values[:3]
        pose[:3, :3] = matrix_from_quaternion(values[3:])
        poses.append(pose)
    return _increasing(stamps, file), np.array(poses)


def camera_poses_in_ros_axes(poses: Array) -> Array:
    """Poses [N, 4, 4] with x right, y down, z forward as those with x forward, y left, z up, in the frame of the first.

    x = z, y = -x, z = -y, of the vehicle and of its world alike.
    """
    turn = np.eye(4)
    turn[:3, :3] = OPTICAL_IN_CAMERA
    return turn @ np.linalg.inv(poses[0]) @ poses @ turn.T


def base_poses(sensor_poses: Array, base_from_sensor: Array) -> Array:
    """Poses [N, 4, 4] of base_link, from those of a sensor that is mounted at `base_from_sensor` [4, 4]."""
    return sensor_poses @ np.linalg.inv(base_from_sensor)


def track_from_poses(stamps_ns: Stamps, poses: Array) -> Track:
    """Poses [N, 4, 4] with the twist that their differences give: central, of second order also for uneven times.

    Raises:
        ConfigurationError: there are fewer than two poses.
    """
    if len(poses) < 2:
        raise ConfigurationError(f"{len(poses)} pose, expected at least two: the twist comes from their differences")
    position, rotation = poses[:, :3, 3], poses[:, :3, :3]
    step = np.diff(stamps_ns) * 1e-9
    body = rotation.swapaxes(1, 2)
    # The next pose and the one before, seen from each.
    ahead = np.concatenate(
        [_vector(body[:-1], np.diff(position, axis=0)), rotation_vector(body[:-1] @ rotation[1:])], axis=-1
    )
    behind = np.concatenate(
        [_vector(body[1:], -np.diff(position, axis=0)), rotation_vector(body[1:] @ rotation[:-1])], axis=-1
    )
    h0, h1 = step[:-1, None], step[1:, None]
    twist = np.empty((len(poses), 6))
    twist[1:-1] = (h0**2 * ahead[1:] - h1**2 * behind[:-1]) / (h0 * h1 * (h0 + h1))
    twist[0], twist[-1] = ahead[0] / step[0], -behind[-1] / step[-1]
    return Track(stamps_ns, position, rotation, twist[:, :3], twist[:, 3:])


def _vector(matrices: Array, vectors: Array) -> Array:
    return np.einsum("nij,nj->ni", matrices, vectors)


def _rows(file: Path, columns: int, what: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and words of each line that isn't empty or a comment."""
    try:
        text = file.read_text(encoding="utf-8-sig")  # editors of Windows begin with a mark
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}; expected lines of {what}") from error
    empty = True
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#")[0].replace(",", " ").split()
        if not words:
            continue
        if len(words) != columns:
            raise ConfigurationError(f"{file}, line {number}: {len(words)} values, expected {columns}: {what}")
        empty = False
        yield number, words
    if empty:
        raise ConfigurationError(f"{file} is empty; expected lines of {what}")


def _numbers(words: list[str], file: Path, line: int) -> list[float]:
    try:
        numbers = [float(word) for word in words]
    except ValueError as error:
        raise ConfigurationError(f"{file}, line {line}: {error}") from error
    if not np.isfinite(numbers).all():
        raise ConfigurationError(f"{file}, line {line}: {' '.join(words)} has a value that is not finite")
    if np.abs(numbers).max() > FARTHEST:
        raise ConfigurationError(f"{file}, line {line}: {' '.join(words)} has a value beyond {FARTHEST:.0e}")
    return numbers


def _nanoseconds(word: str, file: Path, line: int) -> int:
    try:
        stamp = int((Decimal(word) * 1_000_000_000).to_integral_value())
    except (ArithmeticError, ValueError) as error:
        raise ConfigurationError(f"{file}, line {line}: {word!r} is not a time in seconds") from error
    if abs(stamp) >= LAST_STAMP:
        raise ConfigurationError(f"{file}, line {line}: {word} s is beyond 2038 (2^31 s), where stamps of ROS end")
    return stamp


def _increasing(stamps: list[int], file: Path) -> Stamps:
    times = np.array(stamps, np.int64)
    bad = np.flatnonzero(np.diff(times) <= 0)
    if bad.size:
        at = int(bad[0])
        raise ConfigurationError(
            f"{file}: time {at + 2} ({times[at + 1] * 1e-9:.6f} s) is not later than the one before "
            f"({times[at] * 1e-9:.6f} s)"
        )
    return times
