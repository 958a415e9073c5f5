"""Points of ego land on the pixels where OpenCV puts them."""

import cv2
import numpy as np
import pytest

from alpamayo_ros.core.rotation import matrix_from_rpy
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sensors.camera_model import CameraModel

LENSES = {
    "pinhole": ("plumb_bob", ()),
    "plumb_bob, 4": ("plumb_bob", (-0.28, 0.07, 1e-3, -5e-4)),
    "plumb_bob, 5": ("plumb_bob", (-0.28, 0.09, 1e-3, -5e-4, -0.012)),
    "rational_polynomial": ("rational_polynomial", (0.4, 0.1, 1e-4, 2e-4, 0.01, 0.7, 0.2, 0.03)),
    "equidistant": ("equidistant", (-0.02, 0.004, -0.002, 0.0003)),
}
POSITION = np.array([1.6, -0.4, 1.5])
ROTATION = matrix_from_rpy(0.02, 0.1, -0.8)  # looks to the right and a little down


def camera(lens: str = "pinhole", **changes: object) -> CameraModel:
    model, coefficients = LENSES[lens]
    fields = {"position": POSITION, "rotation": ROTATION, "distortion_model": model, "distortion": coefficients}
    return CameraModel(960, 540, 420.0, 430.0, 483.0, 266.0, **{**fields, **changes})


def points_in_view() -> np.ndarray:
    """[200, 3] in ego, within 35 degrees of where the camera looks."""
    rng = np.random.default_rng(0)
    distance = rng.uniform(2, 60, 200)
    sideways = distance[:, None] * rng.uniform(-0.5, 0.5, (200, 2))
    return np.column_stack([distance, sideways]) @ ROTATION.T + POSITION


def by_opencv(model: CameraModel, points: np.ndarray) -> np.ndarray:
    # OpenCV's extrinsics: optical <- ego. Optical axes in the camera's: x right = -y, y down = -z, z ahead = x.
    rotation = np.array([[0, -1, 0], [0, 0, -1], [1, 0, 0]]) @ model.rotation.T
    vector, translation = cv2.Rodrigues(rotation)[0], -rotation @ model.position
    coefficients = np.array(model.distortion or [0.0] * 4)
    if model.distortion_model == "equidistant":
        pixels, _ = cv2.fisheye.projectPoints(points[:, None], vector, translation, model.matrix, coefficients)
    else:
        pixels, _ = cv2.projectPoints(points, vector, translation, model.matrix, coefficients)
    return pixels.reshape(-1, 2)


@pytest.mark.parametrize("lens", LENSES)
class TestEveryLens:
    def test_projects_as_opencv_does(self, lens: str) -> None:
        points = points_in_view()
        pixels, _ = camera(lens).project(points)
        assert np.allclose(pixels, by_opencv(camera(lens), points), atol=1e-6)

    def test_the_ray_through_a_points_pixel_goes_through_the_point(self, lens: str) -> None:
        points = points_in_view()
        rays = camera(lens).rays(camera(lens).project(points)[0])
        wanted = (points - POSITION) / np.linalg.norm(points - POSITION, axis=1, keepdims=True)
        assert np.allclose(rays, wanted, atol=1e-6)

    def test_nothing_behind_the_camera_is_seen(self, lens: str) -> None:
        mirrored = 2 * POSITION - points_in_view()
        pixels, seen = camera(lens).project(mirrored)
        assert not seen.any()
        if lens != "equidistant":
            assert np.isnan(pixels).all()

    def test_a_point_on_the_optical_axis_is_at_the_center(self, lens: str) -> None:
        pixel, seen = camera(lens).project(POSITION + ROTATION @ [7.0, 0.0, 0.0])
        assert np.allclose(pixel, [483.0, 266.0])
        assert seen

    def test_the_ray_of_the_center_is_the_optical_axis(self, lens: str) -> None:
        assert np.allclose(camera(lens).rays(np.array([483.0, 266.0])), ROTATION[:, 0])


class TestDirections:
    ahead = CameraModel(960, 540, 420.0, 430.0, 480.0, 270.0)

    @pytest.mark.parametrize(
        ("point", "pixel"),
        [
            ([10.0, 0.0, 0.0], [480.0, 270.0]),
            ([10.0, 1.0, 0.0], [438.0, 270.0]),  # left of the vehicle is left in the picture
            ([10.0, 0.0, 1.0], [480.0, 227.0]),  # above is above
        ],
    )
    def test_left_and_up_of_a_camera_that_looks_ahead(self, point: list[float], pixel: list[float]) -> None:
        assert np.allclose(self.ahead.project(np.array(point))[0], pixel)

    def test_a_point_outside_of_the_picture_has_a_pixel_but_is_not_seen(self) -> None:
        pixel, seen = self.ahead.project(np.array([10.0, 20.0, 0.0]))
        assert np.allclose(pixel, [-360.0, 270.0])
        assert not seen

    def test_any_batch_shape(self) -> None:
        pixels, seen = self.ahead.project(np.ones((2, 3, 4, 3)))
        assert pixels.shape == (2, 3, 4, 2)
        assert seen.shape == (2, 3, 4)
        assert self.ahead.rays(np.zeros((2, 3, 4, 2))).shape == (2, 3, 4, 3)


def test_points_far_off_the_axis_do_not_fold_back_into_the_picture() -> None:
    """With k1 < 0 the polynomial turns at some angle, and a point at the side would land in the middle."""
    barrel = CameraModel(960, 540, 420.0, 420.0, 480.0, 270.0, "plumb_bob", (-0.3, 0.0, 0.0, 0.0))
    aside = np.array([1.0, 1.8, 0.0])
    folded = cv2.projectPoints(
        np.array([[-1.8, 0.0, 1.0]]), np.zeros(3), np.zeros(3), barrel.matrix, np.array(barrel.distortion)
    )[0]
    assert 0 < folded[0, 0, 0] < 960
    pixel, seen = barrel.project(aside)
    assert np.isnan(pixel).all()
    assert not seen


def test_a_fisheye_sees_beyond_90_degrees() -> None:
    fisheye = CameraModel(1200, 1200, 300.0, 300.0, 600.0, 600.0, "equidistant", (0.0, 0.0, 0.0, 0.0))
    angle = np.radians(100)
    pixel, seen = fisheye.project(np.array([np.cos(angle), np.sin(angle), 0.0]))
    assert seen
    assert np.allclose(pixel, [600 - 300 * angle, 600])
    assert np.allclose(fisheye.rays(pixel), [np.cos(angle), np.sin(angle), 0.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distortion_model": "brown"}, "distortion model 'brown', expected one of plumb_bob, rational_polynomial"),
        ({"distortion": (1.0, 2.0)}, "2 coefficients for plumb_bob, expected 0 or 4 or 5"),
        ({"focal_x": 0.0}, "focal lengths 0.0, 430.0: expected all of them positive"),
    ],
)
def test_what_can_not_be_a_camera_is_refused(changes: dict, message: str) -> None:
    fields = {"width": 960, "height": 540, "focal_x": 420.0, "focal_y": 430.0, "center_x": 480.0, "center_y": 270.0}
    with pytest.raises(ConfigurationError, match=message):
        CameraModel(**{**fields, **changes})
