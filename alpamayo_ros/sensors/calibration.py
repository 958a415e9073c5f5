"""A camera's calibration, from parameters, CameraInfo and static transforms."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.settings import OverlaySettings
from alpamayo_ros.core.transform_tree import TransformTree
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sensors.camera_model import DISTORTION_MODELS, OPTICAL_IN_CAMERA, CameraModel


class Calibration:
    """Collects what is known of one camera until `model` can be made of it.

    Args:
        settings: what is given here is not asked of topics.
        base_frame: the vehicle's frame.
    """

    def __init__(self, settings: OverlaySettings, base_frame: str) -> None:
        self._settings = settings
        self._base_frame = base_frame
        self._info: Any = None
        self._transforms = TransformTree()

    @property
    def needs_camera_info(self) -> bool:
        """Whether the parameters give no intrinsics."""
        return not any(self._settings.intrinsics)

    @property
    def needs_transforms(self) -> bool:
        """Whether the parameters don't say where the camera is."""
        return not any(self._settings.camera_pose)

    def add_camera_info(self, message: Any) -> None:
        """A sensor_msgs/CameraInfo."""
        self._info = message

    def add_static(self, message: Any) -> None:
        """A tf2_msgs/TFMessage of /tf_static."""
        self._transforms.add_static(message.transforms)

    @property
    def missing(self) -> str:
        """What is still needed, in words; "" when there is nothing."""
        if self.needs_camera_info and self._info is None:
            return "no CameraInfo of the anchor camera has come; or set overlay.intrinsics"
        if self.needs_transforms:
            if self._info is None:
                return "overlay.camera_pose is not set, and without CameraInfo the camera's frame is not known"
            if self._optical() is None:
                frame = self._info.header.frame_id
                return f"no static transforms lead from {self._base_frame!r} to {frame!r}; or set overlay.camera_pose"
        return ""

    def model(self) -> CameraModel | None:
        """The calibrated camera in ego; None while something is missing.

        Raises:
            ConfigurationError: the calibration can't be used.
        """
        if self.missing:
            return None
        settings = self._settings
        if self.needs_transforms:
            optical = self._optical()
            assert optical is not None
            position, rotation = optical.position, optical.rotation @ OPTICAL_IN_CAMERA.T
        else:
            place = Mounting.from_xyz_rpy(settings.camera_pose)
            position, rotation = place.position, place.rotation
        if self.needs_camera_info:
            return camera_from_info(self._info, Mounting(position, rotation), rectified=settings.rectified)
        width, height, focal_x, focal_y, center_x, center_y = settings.intrinsics
        most = max(DISTORTION_MODELS[settings.distortion_model])
        if any(settings.distortion[most:]):
            raise ConfigurationError(
                f"overlay.distortion is {list(settings.distortion)}: {settings.distortion_model} has {most} "
                "coefficients, and the rest must be 0"
            )
        return CameraModel(
            *(round(width), round(height), focal_x, focal_y, center_x, center_y),
            distortion_model=settings.distortion_model,
            distortion=settings.distortion[:most],
            position=position,
            rotation=rotation,
        )

    def _optical(self) -> Mounting | None:
        return self._transforms.find(self._base_frame, self._info.header.frame_id.lstrip("/"))


def camera_from_info(message: Any, camera: Mounting, *, rectified: bool = False) -> CameraModel:
    """A sensor_msgs/CameraInfo as a camera.

    Args:
        message: its images are as K and D say, or rectified.
        camera: where it is in ego; x ahead, y left, z up.
        rectified: the images are undistorted already: P counts.

    Raises:
        ConfigurationError: it is not calibrated, or has a lens that isn't known.
    """
    matrix = np.asarray(message.p if rectified else message.k, float).reshape(3, -1)
    distortion = [] if rectified else [float(value) for value in message.d]
    return CameraModel(
        *(int(message.width), int(message.height)),
        *(float(matrix[0, 0]), float(matrix[1, 1]), float(matrix[0, 2]), float(matrix[1, 2])),
        distortion_model=message.distortion_model if distortion else "plumb_bob",
        distortion=distortion,
        position=camera.position,
        rotation=camera.rotation,
    )


def camera_info_topic(image_topic: str, transport: str) -> str:
    """Where a camera's CameraInfo is by convention: beside its image topic, whatever the transport adds to that."""
    base = (
        image_topic.rsplit("/", 1)[0]
        if transport == "compressed" and image_topic.endswith("/compressed")
        else image_topic
    )
    return (base.rsplit("/", 1)[0] + "/" if "/" in base else "") + "camera_info"
