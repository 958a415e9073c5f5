"""The anchor camera's calibration, from a rig's parameters and a bag."""

from __future__ import annotations

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.pose_source import TF_STATIC_TOPIC, TRANSFORMS
from alpamayo_ros.evaluation.rig import resolve_topic
from alpamayo_ros.sensors.calibration import Calibration, camera_info_topic
from alpamayo_ros.sensors.camera_model import CameraModel

CAMERA_INFO = "sensor_msgs/msg/CameraInfo"


def anchor_camera(bag: BagReader, settings: Settings) -> tuple[CameraModel | None, str]:
    """The calibrated anchor camera, or None and why: pictures are then drawn without an overlay."""
    calibration = Calibration(settings.overlay, settings.odometry.base_frame)
    camera = settings.camera(settings.anchor)
    topic = resolve_topic(settings.overlay.camera_info or camera_info_topic(camera.topic, camera.transport))
    if calibration.needs_camera_info or calibration.needs_transforms:
        _add_first(bag, topic, calibration)
    if calibration.needs_transforms and bag.topics.get(TF_STATIC_TOPIC) == TRANSFORMS:
        for message in bag.messages([TF_STATIC_TOPIC]):
            calibration.add_static(message.message)
    try:
        return calibration.model(), calibration.missing
    except ConfigurationError as error:
        return None, str(error)


def _add_first(bag: BagReader, topic: str, calibration: Calibration) -> None:
    if bag.topics.get(topic) != CAMERA_INFO:
        return
    for message in bag.messages([topic]):
        calibration.add_camera_info(message.message)
        return
