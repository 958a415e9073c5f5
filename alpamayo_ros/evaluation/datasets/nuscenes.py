"""nuScenes: tables in JSON, images in `samples` and `sweeps`, poses of every sensor's every sample.

Format: nuscenes.org/nuscenes#data-format. Its ego frame is on the ground below the middle of the rear axle, x forward,
y left, z up: base_link. Images are undistorted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import (
    RecordedCamera,
    RecordedDrive,
    camera_place,
    pose_matrix,
    without_close_ones,
)
from alpamayo_ros.evaluation.datasets.images import image_files
from alpamayo_ros.evaluation.recording import track_from_poses
from alpamayo_ros.progress import progress
from alpamayo_ros.sensors.camera_model import CameraModel

Record = Mapping[str, Any]
POSE_SPACING_NS = 15_000_000  # of poses that are kept: all sensors together have hundreds a second


def read_nuscenes(source: Path, scene: str | None = None, version: str | None = None) -> RecordedDrive:
    """A scene. odom is nuScenes' map, with the first pose as its origin.

    Args:
        source: the dataset's folder, with `samples`, `sweeps` and the tables in a folder such as v1.0-mini.
        scene: its name, such as "scene-0103"; needed where there are several.
        version: which of the tables; needed where there are several.

    Raises:
        ConfigurationError: something is missing or can't be read.
    """
    tables = _Tables(_tables_folder(source, version))
    try:
        return _read(source, tables, scene)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{tables.folder} has a record that is none of nuScenes' format: {error!r}") from error


def _read(source: Path, tables: _Tables, scene: str | None) -> RecordedDrive:
    chosen = _scene(tables, scene)
    samples = {sample["token"] for sample in tables.read("sample") if sample["scene_token"] == chosen["token"]}
    data = [each for each in tables.read("sample_data") if each["sample_token"] in samples]
    if not data:
        raise ConfigurationError(f"{tables.folder}: sample_data has nothing of {chosen['name']}")
    mountings = {each["token"]: each for each in tables.read("calibrated_sensor")}
    channels = {each["token"]: each for each in tables.read("sensor")}
    by_channel: dict[str, list[Record]] = {}
    for each in data:
        sensor = channels[mountings[each["calibrated_sensor_token"]]["sensor_token"]]
        if sensor["modality"] == "camera":
            by_channel.setdefault(sensor["channel"], []).append(each)
    if not by_channel:
        raise ConfigurationError(f"{tables.folder}: {chosen['name']} has no data of cameras")
    cameras = []
    for channel, images in sorted(by_channel.items()):
        cameras.append(_camera(source, channel, images, mountings[images[0]["calibrated_sensor_token"]]))
    stamps, poses = _poses(tables, {each["ego_pose_token"] for each in data})
    poses[:, :3, 3] -= poses[0, :3, 3].copy()
    return RecordedDrive(tuple(cameras), track_from_poses(stamps, poses))


class _Tables:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> list[Record]:
        """A table's records; those of the full dataset take a minute and gigabytes of memory."""
        file = self.folder / f"{name}.json"
        try:
            records: list[Record] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{file} can't be read: {error}; expected a table of nuScenes") from error
        return records


def _tables_folder(source: Path, version: str | None) -> Path:
    found = {folder.name: folder for folder in sorted(source.glob("v1.0-*")) if folder.is_dir()}
    chosen = next(iter(found)) if version is None and len(found) == 1 else version
    if chosen not in found:
        raise ConfigurationError(
            f"{source} has the tables {', '.join(found) or 'of no version, expected a folder such as v1.0-mini'}; "
            f"choose one of them, not {chosen}"
        )
    return found[chosen]


def _scene(tables: _Tables, name: str | None) -> Record:
    scenes = {scene["name"]: scene for scene in tables.read("scene")}
    chosen = next(iter(scenes), None) if name is None and len(scenes) == 1 else name
    if chosen not in scenes:
        raise ConfigurationError(f"scene {name}: {tables.folder} has {', '.join(scenes) or 'none'}; choose one of them")
    return scenes[chosen]


def _camera(source: Path, channel: str, images: Sequence[Record], mounting: Record) -> RecordedCamera:
    """CAM_FRONT_LEFT becomes front_left, as config/nuscenes_6cam.yaml names it."""
    images = sorted(images, key=lambda image: image["timestamp"])
    files = [source / image["filename"] for image in images]
    missing = [file for file in files if not file.is_file()]
    if missing:
        raise ConfigurationError(
            f"{len(missing)} of {len(files)} images of {channel} are missing, such as {missing[0]}; expected the files "
            "of `samples` and `sweeps` that the tables name"
        )
    stamps = np.array([image["timestamp"] * 1000 for image in images], np.int64)
    if (np.diff(stamps) <= 0).any():
        raise ConfigurationError(f"{channel} has two images of one time; expected each later than the one before")
    matrix = np.array(mounting["camera_intrinsic"], float)
    if matrix.shape != (3, 3):
        raise ConfigurationError(f"{channel}: camera_intrinsic is {mounting['camera_intrinsic']}, expected 3x3 numbers")
    place = camera_place(_pose(mounting))
    model = CameraModel(
        *(int(images[0]["width"]), int(images[0]["height"])),
        *(float(matrix[0, 0]), float(matrix[1, 1]), float(matrix[0, 2]), float(matrix[1, 2])),
        position=place.position,
        rotation=place.rotation,
    )
    name = channel.lower().removeprefix("cam_")
    return RecordedCamera(name, stamps, partial(image_files, files), model)


def _poses(tables: _Tables, tokens: set[str]) -> tuple[Any, Array]:
    """Stamps [N] ns and poses [N, 4, 4] of the ego frame in the map, at most 67 a second."""
    records = progress(tables.read("ego_pose"), desc="reading poses", unit=" poses")
    wanted = [record for record in records if record["token"] in tokens]
    if not wanted:
        raise ConfigurationError(f"{tables.folder}: ego_pose has none of the poses that sample_data names")
    stamps = np.array([record["timestamp"] * 1000 for record in wanted], np.int64)
    return without_close_ones(stamps, np.array([_pose(record) for record in wanted]), POSE_SPACING_NS)


def _pose(record: Record) -> Array:
    """[4, 4] from `translation`, m, and `rotation`, w first."""
    w, x, y, z = record["rotation"]
    return pose_matrix(np.array(record["translation"], float), matrix_from_quaternion(np.array([x, y, z, w], float)))
