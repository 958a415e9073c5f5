"""What the node would give the engine at a moment of a recorded drive."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import FRAMES_PER_CAMERA, HISTORY_LENGTH, STEP_NS, EgoPose, Frame, Observation
from alpamayo_ros.sim.recorded_drive import RecordedDrive

CAMERAS = (0, 1, 2, 6)  # left, front, right, front tele: the order of a recorded drive's images
FIRST_TICK = HISTORY_LENGTH - 1  # index of the first moment that has a whole ego history before it
_serials = itertools.count(1)


def histories_of(drive: RecordedDrive) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ego histories of all moments from `FIRST_TICK` on: [M, 16, 3] m and [M, 16, 3, 3], in the pose at each."""
    positions = np.asarray(drive.positions, dtype=np.float64)
    rotations = np.asarray(drive.rotations, dtype=np.float64)
    past = np.arange(FIRST_TICK, len(positions))[:, None] + np.arange(-FIRST_TICK, 1)
    to_ego = rotations[FIRST_TICK:].swapaxes(1, 2)
    offsets = positions[past] - positions[FIRST_TICK:, None]
    return np.einsum("mij,mhj->mhi", to_ego, offsets), np.einsum("mij,mhjk->mhik", to_ego, rotations[past])


def observations_of(drive: RecordedDrive) -> list[Observation]:
    """The observations of all moments from `FIRST_TICK` on; a frame that several of them see is the same in each."""
    frames = [_frames_at(drive, index) for index in range(len(drive.positions))]
    return [
        Observation(
            t0_ns=index * STEP_NS,
            epoch=0,
            frames={
                camera: tuple(frames[moment][camera] for moment in range(index - FRAMES_PER_CAMERA + 1, index + 1))
                for camera in CAMERAS
            },
            history_xyz=xyz,
            history_rotation=rotation,
            pose=EgoPose(index * STEP_NS, drive.positions[index], _quaternion(drive.rotations[index])),
            navigation=drive.navigation[index],
        )
        for index, xyz, rotation in zip(itertools.count(FIRST_TICK), *histories_of(drive), strict=False)
    ]


def _frames_at(drive: RecordedDrive, index: int) -> dict[int, Frame]:
    height, width = drive.images.shape[2:4]
    return {
        camera: Frame(next(_serials), camera, index * STEP_NS, pixels, "rgb8", height, width, 3 * width)
        for camera, pixels in zip(CAMERAS, drive.images[index], strict=True)
    }


def _quaternion(rotation: NDArray[np.float64]) -> NDArray[np.float64]:
    """x, y, z, w of a turn about z."""
    half = np.arctan2(rotation[1, 0], rotation[0, 0]) / 2
    return np.array([0.0, 0.0, np.sin(half), np.cos(half)])
