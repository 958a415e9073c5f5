"""A tiny checkpoint with random weights, and observations for it."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from alpamayo_ros.core.types import EgoPose, Frame, Observation

_serials = itertools.count(1)


def write_tiny_checkpoint(folder: Path, seed: int = 0) -> Path:
    from alpamayo_ros.tools.make_checkpoint import make_tiny  # here, since it brings transformers

    make_tiny(folder, seed)
    return folder


def changed_copy(checkpoint: Path, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of a checkpoint whose config.json was changed."""
    shutil.copytree(checkpoint, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))
    return folder


def picture(seed: int, height: int = 96, width: int = 160) -> np.ndarray:
    """Coarse random blocks: uint8 [height, width, 3]."""
    blocks = np.random.default_rng(seed).integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    return blocks.repeat(16, 0).repeat(16, 1)


def raw_frame(camera: int, stamp_ns: int, pixels: np.ndarray) -> Frame:
    height, width = pixels.shape[:2]
    return Frame(next(_serials), camera, stamp_ns, pixels, "rgb8", height, width, 3 * width)


def drive(cameras: tuple[int, ...] = (1, 6), speed: float = 8.0, navigation: str | None = None) -> Observation:
    """Straight ahead at constant speed; the pictures depend on camera and time alone, the serials are new."""
    frames = {
        camera: tuple(raw_frame(camera, 100_000_000 * (i + 1), picture(10 * camera + i)) for i in range(4))
        for camera in cameras
    }
    history = np.zeros((16, 3))
    history[:, 0] = speed * 0.1 * np.arange(-15, 1)
    return Observation(
        t0_ns=400_000_000,
        epoch=0,
        frames=frames,
        history_xyz=history,
        history_rotation=np.tile(np.eye(3), (16, 1, 1)),
        pose=EgoPose(400_000_000, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])),
        navigation=navigation,
    )
