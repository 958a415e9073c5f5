"""What KITTI's odometry and raw recordings have in common: calibration files, and which cameras there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import camera_place, pose_matrix
from alpamayo_ros.evaluation.recording import read_image_file
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sensors.compressed import image_size

# Numbers of the cameras by the names that config/kitti_stereo.yaml has. Colour is taken before gray.
STEREO = ({"front_wide": 2, "front_tele": 3}, {"front_wide": 0, "front_tele": 1})


def stereo_pair(folder: Path, digits: int) -> dict[str, tuple[int, Path]]:
    """The numbers and folders of the cameras that were recorded, by their names.

    Args:
        folder: has folders such as image_2, or image_02 with two digits.
        digits: of the numbers in their names.

    Raises:
        ConfigurationError: there is none.
    """
    for pair in STEREO:
        found = {name: (number, folder / f"image_{number:0{digits}d}") for name, number in pair.items()}
        present = {name: (number, images) for name, (number, images) in found.items() if images.is_dir()}
        if present:
            return present
    raise ConfigurationError(f"{folder} has no images: expected at least one of image_{0:0{digits}d} to 3")


def read_calibration(file: Path) -> dict[str, Array]:
    """The rows of numbers in a file of "name: numbers"; rows of anything else, such as dates, are left out.

    Raises:
        ConfigurationError: the file can't be read.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} can't be read: {error}; expected KITTI's calibration") from error
    rows = {}
    for line in lines:
        name, found, numbers = line.partition(":")
        try:
            rows[name.strip()] = np.array([float(word) for word in numbers.split()] if found else [])
        except ValueError:
            continue
    return rows


def row(rows: Mapping[str, Array], name: str, length: int, file: Path) -> Array:
    """A row of that many finite numbers.

    Raises:
        ConfigurationError: there is none.
    """
    values = rows.get(name)
    if values is None or len(values) != length or not np.isfinite(values).all():
        found = "missing" if values is None else f"{len(values)} numbers"
        raise ConfigurationError(f"{file}: {name} is {found}; expected {length} finite numbers")
    return values


def rectified_camera(projection: Array, base_from_rectified: Array, image: Path) -> CameraModel:
    """A rectified camera from its matrix P = K [I | t], t being where the reference camera is, seen from this one.

    Args:
        projection: P, 12 numbers row by row: points in the reference camera's rectified optical frame to pixels.
        base_from_rectified: [4, 4] of that frame in base_link.
        image: one of its images, for their size.
    """
    p = projection.reshape(3, 4)
    position = np.array(-np.linalg.solve(p[:, :3], p[:, 3]), np.float64)
    place = camera_place(base_from_rectified @ pose_matrix(position, np.eye(3)))
    height, width = image_size(read_image_file(image)[0])
    return CameraModel(
        *(width, height, float(p[0, 0]), float(p[1, 1]), float(p[0, 2]), float(p[1, 2])),
        position=place.position,
        rotation=place.rotation,
    )
