"""An observation of nothing, for warming up."""

from __future__ import annotations

import numpy as np

from alpamayo_ros.core.types import FRAMES_PER_CAMERA, HISTORY_LENGTH, STEP_NS, EgoPose, Frame, Observation

SIZE = (1080, 1920)


def dummy_observation(cameras: int) -> Observation:
    """Grey images of 1920x1080 and a vehicle that stands. Serial numbers are negative: no real frame has them."""
    height, width = SIZE
    grey = np.full((height, width, 3), 128, dtype=np.uint8)
    frames = {
        camera: tuple(
            Frame(
                serial=-1 - camera * FRAMES_PER_CAMERA - index,
                camera=camera,
                stamp_ns=(index + 1) * STEP_NS,
                data=grey,
                encoding="rgb8",
                height=height,
                width=width,
                step=3 * width,
            )
            for index in range(FRAMES_PER_CAMERA)
        )
        for camera in range(cameras)
    }
    return Observation(
        t0_ns=FRAMES_PER_CAMERA * STEP_NS,
        epoch=0,
        frames=frames,
        history_xyz=np.zeros((HISTORY_LENGTH, 3)),
        history_rotation=np.tile(np.eye(3), (HISTORY_LENGTH, 1, 1)),
        pose=EgoPose(FRAMES_PER_CAMERA * STEP_NS, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0])),
    )
