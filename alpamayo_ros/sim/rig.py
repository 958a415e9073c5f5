"""The four cameras of NVIDIA's PhysicalAI rig that the model sees, on the synthetic vehicle."""

from __future__ import annotations

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_rpy
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sensors.camera_model import CameraModel

# Name: horizontal field of view (degrees), position (m), yaw (degrees); in the order of the model's indices 0, 1, 2, 6.
CAMERAS = {
    "cross_left": (120.0, (1.9, 0.9, 1.1), 60.0),
    "front_wide": (120.0, (1.7, 0.0, 1.5), 0.0),
    "cross_right": (120.0, (1.9, -0.9, 1.1), -60.0),
    "front_tele": (30.0, (1.7, 0.1, 1.5), 0.0),
}
SMALLEST = 16  # pixels
CAMERA_INDICES = {"cross_left": 0, "front_wide": 1, "cross_right": 2, "front_tele": 6}  # the model's


def rig(width: int, height: int) -> dict[str, CameraModel]:
    """The cameras by name, as pinholes with pictures of that size in pixels.

    Raises:
        ConfigurationError: a size that can't be.
    """
    if width < SMALLEST or height < SMALLEST:
        raise ConfigurationError(f"pictures of {width}x{height} pixels, expected at least {SMALLEST}x{SMALLEST}")
    cameras = {}
    for name, (view, position, yaw) in CAMERAS.items():
        focal = width / 2 / np.tan(np.radians(view / 2))
        center = ((width - 1) / 2, (height - 1) / 2)
        rotation = matrix_from_rpy(0.0, 0.0, np.radians(yaw))
        cameras[name] = CameraModel(
            width, height, focal, focal, *center, position=np.array(position), rotation=rotation
        )
    return cameras
