"""A calibration comes from parameters, from topics, or from both; what is missing is named."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alpamayo_ros.core.rotation import quaternion_from_matrix
from alpamayo_ros.core.settings import OverlaySettings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sensors.calibration import Calibration, camera_info_topic
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA

POSE = (1.0, 0.0, 1.5, 0.0, 0.0, 0.0)
INTRINSICS = (640.0, 480.0, 500.0, 510.0, 320.0, 240.0)


def info(**changes: Any) -> Any:
    fields = {
        "header": SimpleNamespace(frame_id="front_optical"),
        "width": 640,
        "height": 480,
        "distortion_model": "equidistant",
        "d": np.array([0.1, 0.0, 0.0, 0.0]),
        "k": np.array([500.0, 0, 320, 0, 510, 240, 0, 0, 1]),
        "p": np.array([400.0, 0, 310, 0, 0, 400, 230, 0, 0, 0, 1, 0]),
    }
    return SimpleNamespace(**{**fields, **changes})


def static(parent: str, child: str) -> Any:
    """The child's frame is an optical one, a metre ahead of and above the parent, and looks ahead."""
    x, y, z, w = quaternion_from_matrix(OPTICAL_IN_CAMERA)
    transform = SimpleNamespace(
        translation=SimpleNamespace(x=1.0, y=0.0, z=1.0), rotation=SimpleNamespace(x=x, y=y, z=z, w=w)
    )
    each = SimpleNamespace(header=SimpleNamespace(frame_id=parent), child_frame_id=child, transform=transform)
    return SimpleNamespace(transforms=[each])


def test_parameters_alone_are_enough() -> None:
    settings = OverlaySettings(camera_pose=POSE, intrinsics=INTRINSICS, distortion=(-0.1, 0.01, 0, 0, 0, 0, 0, 0))
    calibration = Calibration(settings, "base_link")
    assert not calibration.needs_camera_info
    assert not calibration.needs_transforms
    model = calibration.model()
    assert model is not None
    assert model.project(np.array([11.0, 0, 1.5]))[0] == pytest.approx([320, 240])
    assert list(model.distortion) == [-0.1, 0.01, 0, 0, 0]


def test_topics_alone_are_enough() -> None:
    calibration = Calibration(OverlaySettings(), "base_link")
    assert "CameraInfo" in calibration.missing
    assert calibration.model() is None
    calibration.add_camera_info(info())
    assert "from 'base_link' to 'front_optical'" in calibration.missing
    calibration.add_static(static("base_link", "front_optical"))
    assert calibration.missing == ""
    model = calibration.model()
    assert model is not None
    assert model.distortion_model == "equidistant"
    assert model.project(np.array([11.0, 0, 1.0]))[0] == pytest.approx([320, 240])
    assert model.project(np.array([11.0, 1.0, 1.0]))[0][0] < 320  # left is left


def test_a_pose_by_parameter_goes_with_a_camera_info() -> None:
    calibration = Calibration(OverlaySettings(camera_pose=POSE), "base_link")
    calibration.add_camera_info(info())
    model = calibration.model()
    assert model is not None
    assert model.position.tolist() == [1.0, 0.0, 1.5]


def test_rectified_pictures_have_the_projection_and_no_distortion() -> None:
    calibration = Calibration(OverlaySettings(camera_pose=POSE, rectified=True), "base_link")
    calibration.add_camera_info(info())
    model = calibration.model()
    assert model is not None
    assert (model.focal_x, model.center_x, list(model.distortion)) == (400.0, 310.0, [])


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"distortion_model": "double_sphere"}, "double_sphere"),
        ({"k": np.zeros(9)}, "is it calibrated"),
        ({"distortion_model": "rational_polynomial", "d": np.zeros(14)}, "14 coefficients"),
        ({"k": np.full(9, np.inf)}, "expected finite numbers"),
        ({"d": np.array([0.1, np.nan, 0, 0])}, "expected finite numbers"),
    ],
)
def test_a_calibration_that_can_not_be_used_is_refused(changes: dict[str, Any], text: str) -> None:
    calibration = Calibration(OverlaySettings(camera_pose=POSE), "base_link")
    calibration.add_camera_info(info(**changes))
    with pytest.raises(ConfigurationError, match=text):
        calibration.model()


def test_more_coefficients_than_the_lens_has_are_refused() -> None:
    settings = OverlaySettings(camera_pose=POSE, intrinsics=INTRINSICS, distortion=(0, 0, 0, 0, 0, 1.0, 0, 0))
    with pytest.raises(ConfigurationError, match="plumb_bob has 5 coefficients"):
        Calibration(settings, "base_link").model()


@pytest.mark.parametrize(
    ("topic", "transport", "expected"),
    [
        ("/camera/front/image_raw", "raw", "/camera/front/camera_info"),
        ("/camera/front/image_raw/compressed", "compressed", "/camera/front/camera_info"),
        ("/front/compressed_jpeg", "compressed", "/front/camera_info"),
        ("image", "raw", "camera_info"),
    ],
)
def test_camera_info_is_beside_the_image(topic: str, transport: str, expected: str) -> None:
    assert camera_info_topic(topic, transport) == expected
