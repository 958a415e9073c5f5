"""Drives of the expert driver as data to learn from: what it saw, what it did next, and why. Deterministic by seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import HORIZON, Array
from alpamayo_ros.sim.drive import IMAGE_HZ, ODOMETRY_HZ, synthetic_drive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES, Reason

IMAGE_SIZE = (96, 160)  # pixels, height and width
BEND = 1 / 200  # 1/m


@dataclass(frozen=True, eq=False)
class RecordedDrive:
    """One drive of the expert driver, sampled at 10 Hz."""

    images: NDArray[np.uint8]  # [T, 4, H, W, 3] RGB, cameras in the model's order: left, front wide, right, front tele
    positions: Array  # [T, 3] m in the world (x east, y north, z up), of the vehicle's origin: the rear axle, on ground
    rotations: Array  # [T, 3, 3] world <- vehicle
    speeds: Array  # [T] m/s
    futures: Array  # [T, 64, 3] m in the vehicle's frame then, 0.1 to 6.4 s on: what the driver does undisturbed
    future_rotations: Array  # [T, 64, 3, 3] likewise
    sentences: tuple[str, ...]  # [T]
    classes: NDArray[np.int64]  # [T] index into SENTENCE_CLASSES
    navigation: tuple[str | None, ...]  # [T] as "Turn left in 30m"; None away from junctions


def record_drive(
    seed: int, seconds: float, *, image_size: tuple[int, int] = IMAGE_SIZE, disturbed: bool = False
) -> RecordedDrive:
    """Drive for so long in the world of that seed.

    Args:
        seed: of the world and everything in it.
        seconds: the drive's length.
        image_size: height and width, pixels.
        disturbed: push the vehicle off its lane now and then; `futures` then show how to get back.

    Raises:
        ConfigurationError: a duration or size that can't be.
    """
    height, width = image_size
    every = ODOMETRY_HZ // IMAGE_HZ
    count = round(seconds * IMAGE_HZ)
    drive = synthetic_drive(seconds + HORIZON / IMAGE_HZ, seed, width=width, height=height)
    track = drive.track
    rotation, position = track.rotation[::every], track.position[::every]
    ahead = np.arange(count)[:, None] + np.arange(1, HORIZON + 1)
    inverse = rotation[:count].swapaxes(1, 2)
    images = np.empty((count, len(drive.cameras), height, width, 3), np.uint8)
    for number, (_, _, picture) in zip(range(count * len(drive.cameras)), drive.images(), strict=False):
        images[number // len(drive.cameras), number % len(drive.cameras)] = picture
    curvature = (track.angular[:, 2] / track.linear[:, 0])[::every][:count]
    bends = np.where(curvature > 0, Reason.FOLLOW_LEFT_BEND, Reason.FOLLOW_RIGHT_BEND)
    classes = np.where(np.abs(curvature) < BEND, Reason.KEEP, bends).astype(np.int64)
    return RecordedDrive(
        images=images,
        positions=position[:count],
        rotations=rotation[:count],
        speeds=track.linear[::every, 0][:count],
        futures=np.einsum("tij,tkj->tki", inverse, position[ahead] - position[:count, None]),
        future_rotations=inverse[:, None] @ rotation[ahead],
        sentences=tuple(SENTENCE_CLASSES[each] for each in classes),
        classes=classes,
        navigation=(None,) * count,
    )
