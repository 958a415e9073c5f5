"""NVIDIA's PhysicalAI-Autonomous-Vehicles: clips of 20 s with seven cameras, in archives of 100 clips each.

Read as the files are, in a folder with the layout of huggingface.co/datasets/nvidia/PhysicalAI-Autonomous-Vehicles; its
card and the package physical_ai_av describe them. Its rig frame is on the ground below the middle of the rear axle, x
forward, y left, z up: base_link. Times are in us from a time near the clip's beginning.
"""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import (
    EncodedImage,
    RecordedCamera,
    RecordedDrive,
    camera_place,
    pose_matrix,
)
from alpamayo_ros.evaluation.datasets.f_theta import equidistant_from_f_theta
from alpamayo_ros.evaluation.datasets.parquet import read_columns
from alpamayo_ros.evaluation.datasets.video import video_frames
from alpamayo_ros.evaluation.recording import Stamps, Track, track_from_poses
from alpamayo_ros.sensors.camera_model import CameraModel

CAMERAS = {  # the names that the model and config/physical_ai_4cam.yaml have
    "cross_left": "camera_cross_left_120fov",
    "front_wide": "camera_front_wide_120fov",
    "cross_right": "camera_cross_right_120fov",
    "rear_left": "camera_rear_left_70fov",
    "rear_tele": "camera_rear_tele_30fov",
    "rear_right": "camera_rear_right_70fov",
    "front_tele": "camera_front_tele_30fov",
}
QUATERNION, POSITION = ("qx", "qy", "qz", "qw"), ("x", "y", "z")
LENS = tuple(f"fw_poly_{power}" for power in range(5))
LENS_ERROR = 1.0  # pixels between NVIDIA's lens and ROS's that are worth a note


def read_physical_ai(source: Path, clip: str | None = None, cameras: tuple[str, ...] = ()) -> RecordedDrive:
    """A clip. odom is the dataset's local frame, with its origin where the vehicle is at time 0.

    Args:
        source: a folder with `labels`, `camera` and `calibration`, as downloaded; its archives may be unpacked.
        clip: its id; needed where there are several.
        cameras: their names, as the model has them; none: every camera that was downloaded.

    Raises:
        ConfigurationError: something is missing or can't be read, or pyarrow is not installed.
    """
    clip = _chosen_clip(source, clip)
    calibration = _Calibration(source, clip)
    recorded = [
        _camera(source, clip, name, calibration)
        for name in (cameras or CAMERAS)
        if cameras or _find(source / "camera" / CAMERAS[name], f"{clip}.{CAMERAS[name]}.mp4")
    ]
    if not recorded:
        raise ConfigurationError(f"{source / 'camera'} has no video of the clip {clip}")
    return RecordedDrive(tuple(recorded), _track(source, clip), tuple(calibration.notes))


@dataclass(frozen=True)
class _Member:
    """A file of a clip: on its own, or within an archive."""

    path: Path
    name: str = ""  # within the archive

    def __str__(self) -> str:
        return f"{self.name} in {self.path}" if self.name else str(self.path)

    def read(self) -> bytes:
        """The file's content."""
        try:
            if not self.name:
                return self.path.read_bytes()
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(self.name)
        except (OSError, zipfile.BadZipFile, zlib.error) as error:
            raise ConfigurationError(f"{self} can't be read: {error}") from error


def _members(folder: Path, ending: str) -> Iterator[_Member]:
    """The files below a folder, and in archives there, whose names end so."""
    for file in sorted(folder.rglob(f"*{ending}")):
        yield _Member(file)
    for path in sorted(folder.rglob("*.zip")):
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise ConfigurationError(f"{path} can't be read: {error}; was it downloaded whole?") from error
        yield from (_Member(path, name) for name in sorted(names) if name.endswith(ending))


def _find(folder: Path, name: str) -> _Member | None:
    return next(_members(folder, name), None)


def _needed(folder: Path, name: str) -> _Member:
    found = _find(folder, name)
    if found is None:
        raise ConfigurationError(f"{folder} has no {name}, neither as a file nor in an archive; was it downloaded?")
    return found


def _chosen_clip(source: Path, clip: str | None) -> str:
    if clip is not None:
        return clip
    folder, ending = source / "labels" / "egomotion", ".egomotion.parquet"
    found = sorted(
        {Path(member.name or member.path.name).name.removesuffix(ending) for member in _members(folder, ending)}
    )
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigurationError(
            f"{folder} has no egomotion of any clip; expected the layout of PhysicalAI-Autonomous-Vehicles in {source}"
        )
    shown = ", ".join(found[:5]) + (", ..." if len(found) > 5 else "")
    raise ConfigurationError(f"{source} has {len(found)} clips: {shown}; choose one with --clip")


def _track(source: Path, clip: str) -> Track:
    member = _needed(source / "labels" / "egomotion", f"{clip}.egomotion.parquet")
    columns = read_columns(member.read(), ("timestamp", *POSITION, *QUATERNION), str(member))
    stamps = _stamps(columns["timestamp"], member)
    poses = pose_matrix(_numbers(columns, POSITION, member), _rotations(_numbers(columns, QUATERNION, member), member))
    return track_from_poses(stamps, poses)


def _camera(source: Path, clip: str, name: str, calibration: _Calibration) -> RecordedCamera:
    if name not in CAMERAS:
        raise ConfigurationError(f"camera {name}: the vehicle has {', '.join(CAMERAS)}")
    feature = CAMERAS[name]
    folder = source / "camera" / feature
    video = _needed(folder, f"{clip}.{feature}.mp4")
    times = _needed(folder, f"{clip}.{feature}.timestamps.parquet")
    stamps = _stamps(read_columns(times.read(), ("timestamp",), str(times))["timestamp"], times)
    return RecordedCamera(name, stamps, partial(_frames, video, len(stamps)), calibration.camera(feature))


def _frames(video: _Member, count: int) -> Iterator[EncodedImage]:
    if not video.name:
        yield from video_frames(video.path, count)
        return
    with tempfile.NamedTemporaryFile(prefix="alpamayo_ros_", suffix=".mp4") as unpacked:
        unpacked.write(video.read())
        unpacked.flush()
        yield from video_frames(Path(unpacked.name), count)


class _Calibration:
    """A clip's cameras, if their calibration was downloaded; if not, a note says so."""

    def __init__(self, source: Path, clip: str) -> None:
        self.notes: list[str] = []
        intrinsics, extrinsics = (
            source / "calibration" / "camera_intrinsics",
            source / "calibration" / "sensor_extrinsics",
        )
        self._lenses = _rows(intrinsics, clip, "camera_name", ("width", "height", "cx", "cy", *LENS))
        self._places = _rows(extrinsics, clip, "sensor_name", (*POSITION, *QUATERNION))
        for folder, rows in ((intrinsics, self._lenses), (extrinsics, self._places)):
            if not rows:
                self.notes.append(
                    f"{folder} has nothing of this clip: the bag has no CameraInfo and no frames of cameras"
                )

    def camera(self, feature: str) -> CameraModel | None:
        """The camera in base_link; None when it isn't known."""
        if feature not in self._lenses or feature not in self._places:
            return None
        x, y, z, *quaternion = self._places[feature]
        rotation = matrix_from_quaternion(np.array(quaternion))  # of the optical frame in the rig
        place = camera_place(pose_matrix(np.array([x, y, z]), rotation))
        width, height, center_x, center_y, *polynomial = self._lenses[feature]
        radius = float(np.hypot(max(center_x, width - center_x), max(center_y, height - center_y)))
        focal, distortion, error = equidistant_from_f_theta(polynomial, radius)
        if error > LENS_ERROR:
            self.notes.append(
                f"{feature}: CameraInfo's lens is up to {error:.1f} pixels off the dataset's f-theta lens"
            )
        return CameraModel(
            *(round(width), round(height), focal, focal, center_x, center_y),
            distortion_model="equidistant",
            distortion=distortion,
            position=place.position,
            rotation=place.rotation,
        )


def _rows(folder: Path, clip: str, key: str, columns: tuple[str, ...]) -> dict[str, list[float]]:
    """A clip's rows of the tables below a folder, by the sensor's name."""
    for file in sorted(folder.rglob("*.parquet")):
        table = read_columns(_Member(file).read(), ("clip_id", key, *columns), str(file))
        found = {
            table[key][at]: [float(table[column][at]) for column in columns]
            for at, owner in enumerate(table["clip_id"])
            if owner == clip
        }
        if found:
            return found
    return {}


def _stamps(values: list[int], member: _Member) -> Stamps:
    """From us to ns."""
    stamps = np.array(values, np.int64) * 1000
    if not len(stamps) or (np.diff(stamps) <= 0).any():
        raise ConfigurationError(f"{member}: expected timestamps, each later than the one before")
    return stamps


def _numbers(columns: dict[str, list[float]], names: tuple[str, ...], member: _Member) -> Array:
    values = np.array([columns[name] for name in names], float).T
    if not np.isfinite(values).all():
        raise ConfigurationError(f"{member}: {', '.join(names)} have values that are not finite")
    return values


def _rotations(quaternions: Array, member: _Member) -> Array:
    if np.linalg.norm(quaternions, axis=1).min() < 1e-6:
        raise ConfigurationError(f"{member}: a quaternion is 0")
    return matrix_from_quaternion(quaternions)
