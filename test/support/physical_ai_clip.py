"""A clip in the layout of NVIDIA's PhysicalAI-Autonomous-Vehicles, made here: lenses, videos, tables, archives."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from landmark import CENTER, LAMP, SIZE, Pixel, base_pose, optical_in_base, seen, times, video

from alpamayo_ros.core.rotation import quaternion_from_matrix
from alpamayo_ros.core.types import Array

CLIP = "25cd4769-5dcf-4b53-a351-bf2c5deb6124"
OTHER = "0a948f59-0a06-41a2-8e20-ac3a39ff4d61"
CAMERAS = {
    "camera_front_wide_120fov": optical_in_base(1.75, 0.0, 1.43, pitch=0.03),
    "camera_cross_left_120fov": optical_in_base(2.1, 0.9, 0.95, yaw=0.5),
    "camera_cross_right_120fov": optical_in_base(2.1, -0.9, 0.95, yaw=-0.3),
    "camera_front_tele_30fov": optical_in_base(1.75, 0.1, 1.43),
}
LENS = (0.0, 150.0, -2.0, -5.0, 1.5)  # pixels; powers of the angle from 0
FIRST_IMAGE = -0.0142  # s; images begin a little before the clip's time 0


def f_theta(point: Array) -> Pixel:
    """The pixel of a point in an optical frame."""
    x, y, z = point
    angle = np.arctan2(np.hypot(x, y), z)
    radius = sum(factor * angle**power for power, factor in enumerate(LENS))
    return CENTER[0] + radius * x / np.hypot(x, y), CENTER[1] + radius * y / np.hypot(x, y)


def parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.table(dict(columns)), file)
    return file.getvalue()


def archive(path: Path, files: Mapping[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as out:
        for name, data in files.items():
            out.writestr(name, data)


def make_clip(folder: Path, seconds: float = 3.0, rate: float = 30.0) -> Path:
    """The dataset's folder: one chunk, with a drive past the lamp, and the poses of another clip."""
    for number, (camera, optical) in enumerate(CAMERAS.items()):
        moments = times(seconds, rate, begin=FIRST_IMAGE + number * 0.001)
        pixels = [f_theta(seen(base_pose(t) @ optical, LAMP)) for t in moments]
        film = video(folder / f"{camera}.film", pixels, rate)
        archive(
            folder / "camera" / camera / f"{camera}.chunk_0000.zip",
            {
                f"{CLIP}.{camera}.mp4": film.read_bytes(),
                f"{CLIP}.{camera}.timestamps.parquet": parquet({"timestamp": [round(t * 1e6) for t in moments]}),
                f"{CLIP}.{camera}.blurred_boxes.parquet": b"",
            },
        )
        film.unlink()
    moments = times(seconds + 0.4, 100, begin=-0.2)
    poses = np.array([base_pose(t) for t in moments])
    motion = table(poses) | {"timestamp": [round(t * 1e6) for t in moments]}
    archive(
        folder / "labels" / "egomotion" / "egomotion.chunk_0000.zip",
        {f"{clip}.egomotion.parquet": parquet(motion) for clip in (CLIP, OTHER)},
    )
    lenses: dict[str, Any] = {"clip_id": [CLIP] * len(CAMERAS), "camera_name": list(CAMERAS)}
    lenses |= {name: [value] * len(CAMERAS) for name, value in zip(("width", "height"), SIZE, strict=True)}
    lenses |= {name: [value] * len(CAMERAS) for name, value in zip(("cx", "cy"), CENTER, strict=True)}
    lenses |= {f"fw_poly_{power}": [value] * len(CAMERAS) for power, value in enumerate(LENS)}
    places = {"clip_id": [CLIP] * len(CAMERAS), "sensor_name": list(CAMERAS)} | table(np.array(list(CAMERAS.values())))
    for name, columns in (("camera_intrinsics", lenses), ("sensor_extrinsics", places)):
        file = folder / "calibration" / name / f"{name}.chunk_0000.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(parquet(columns))
    return folder


def table(poses: Array) -> dict[str, Any]:
    """Poses [N, 4, 4] as columns."""
    quaternions = quaternion_from_matrix(poses[:, :3, :3])
    columns = {name: quaternions[:, at] for at, name in enumerate(("qx", "qy", "qz", "qw"))}
    return columns | {name: poses[:, at, 3] for at, name in enumerate("xyz")}
