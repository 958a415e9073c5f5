"""Paths in pictures are where OpenCV projects them, never come from behind, and can be seen."""

import cv2
import numpy as np
import pytest

from alpamayo_ros.core.rotation import matrix_from_rpy
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sensors.overlay import (
    CHOSEN,
    DRIVEN,
    NEAR,
    draw_paths,
    in_front,
    lines,
    resized,
    ribbon,
    write_below,
)

LENSES = {
    "plumb_bob": (-0.28, 0.09, 1e-3, -5e-4, -0.012),
    "rational_polynomial": (0.4, 0.1, 1e-4, 2e-4, 0.01, 0.7, 0.2, 0.03),
    "equidistant": (-0.02, 0.004, -0.002, 0.0003),
}
POSITION = np.array([1.6, 0.1, 1.5])
ROTATION = matrix_from_rpy(0.01, 0.06, 0.03)
TIMES = np.arange(1, 65) * 0.1


def camera(lens: str = "plumb_bob", distortion: tuple[float, ...] | None = None) -> CameraModel:
    given = LENSES[lens] if distortion is None else distortion
    return CameraModel(960, 540, 500.0, 505.0, 483.0, 266.0, lens, given, POSITION, ROTATION)


def arc(speed: float = 10.0, curvature: float = 0.01) -> Array:
    heading = curvature * speed * TIMES
    return np.stack([np.sin(heading) / curvature, (1 - np.cos(heading)) / curvature, 0 * heading], axis=-1)


def by_opencv(model: CameraModel, points: Array) -> Array:
    rotation = np.array([[0, -1, 0], [0, 0, -1], [1, 0, 0]]) @ model.rotation.T  # optical <- ego
    vector, translation = cv2.Rodrigues(rotation)[0], -rotation @ model.position
    coefficients = np.array(model.distortion)
    if model.distortion_model == "equidistant":
        pixels, _ = cv2.fisheye.projectPoints(points[:, None], vector, translation, model.matrix, coefficients)
    else:
        pixels, _ = cv2.projectPoints(points, vector, translation, model.matrix, coefficients)
    return pixels.reshape(-1, 2)


@pytest.mark.parametrize("lens", LENSES)
def test_a_path_goes_through_the_pixels_that_opencv_gives_its_points(lens: str) -> None:
    model = camera(lens)
    ahead = arc()[30:]  # well inside of every lens
    (line,) = lines(model, ahead)
    expected = by_opencv(model, ahead)
    apart = np.linalg.norm(line[:, None] - expected, axis=-1).min(axis=0)
    assert apart.max() < 1e-6


@pytest.mark.parametrize("lens", LENSES)
def test_the_ribbon_is_as_wide_as_the_vehicle(lens: str) -> None:
    model = camera(lens)
    straight = np.stack([np.linspace(15, 40, 64), 0 * TIMES, 0 * TIMES], axis=-1)
    quads = np.array(ribbon(model, straight))
    assert len(quads) >= 63
    assert quads[0, 0] == pytest.approx(by_opencv(model, np.array([[15, 0.9, 0.0]]))[0])
    assert quads[0, 1] == pytest.approx(by_opencv(model, np.array([[15, -0.9, 0.0]]))[0])
    assert quads[-1, 3] == pytest.approx(by_opencv(model, np.array([[40, 0.9, 0.0]]))[0])


def depth(model: CameraModel, points: Array) -> Array:
    return model.to_optical(points)[:, 2]


def test_a_path_from_behind_the_camera_begins_at_the_near_plane() -> None:
    model = camera()
    (piece,) = in_front(model, arc())  # begins at the axle, 1.6 m behind the camera
    assert depth(model, piece)[0] == pytest.approx(NEAR)
    assert (depth(model, piece) >= NEAR - 1e-9).all()
    assert piece[-1] == pytest.approx(arc()[-1])


def test_a_path_that_turns_back_ends_at_the_near_plane_and_may_come_again() -> None:
    x = np.array([0.0, 5.0, 10.0, 0.0, -5.0, 0.0, 8.0])
    loop = np.stack([x, 0.1 * np.arange(7), 0 * x], axis=-1)
    pieces = in_front(camera(), loop)
    assert len(pieces) == 2
    ends = [depth(camera(), pieces[0])[0], depth(camera(), pieces[0])[-1], depth(camera(), pieces[1])[0]]
    assert ends == pytest.approx([NEAR] * 3)


def test_nothing_is_drawn_of_a_path_behind_the_camera() -> None:
    behind = arc() - [100.0, 0, 0]
    assert in_front(camera(), behind) == []
    assert lines(camera(), behind) == []
    assert ribbon(camera(), behind) == []


def test_a_vehicle_that_stands_has_no_ribbon() -> None:
    assert ribbon(camera(), np.full((64, 3), [10.0, 0.0, 0.0])) == []


def test_a_line_stops_where_the_lens_ends() -> None:
    sideways = np.stack([np.full(64, 4.0), np.linspace(0, 60, 64), np.zeros(64)], axis=-1)
    folding = camera("plumb_bob", (-0.3, 0.0, 0.0, 0.0))
    (line,) = lines(folding, sideways)
    assert np.isfinite(line).all()
    assert np.linalg.norm(line - [483.0, 266.0], axis=-1).max() < 500  # beyond, the polynomial would come back
    assert (np.diff(line[:, 0]) < 0).all()


class TestPictures:
    gray = np.full((540, 960, 3), 128, np.uint8)

    def test_the_chosen_path_the_samples_and_the_truth_are_seen(self) -> None:
        drawn = draw_paths(self.gray, camera(), arc(), [arc(10.0, -0.02)], arc(10.0, 0.02))
        assert (self.gray == 128).all()  # the original stays
        for color in (CHOSEN, DRIVEN):
            assert (np.abs(drawn.astype(int) - color).max(axis=-1) < 30).sum() > 200
        x, y = np.rint(by_opencv(camera(), arc()[30:31])[0]).astype(int)
        assert np.abs(drawn[y, x].astype(int) - CHOSEN).max() < 60
        assert (drawn[:200] == 128).all()  # nothing in the sky

    def test_a_scaled_picture_has_them_at_the_same_places(self) -> None:
        half = resized(camera(), 480, 270)
        whole, scaled = camera().project(arc()[30:])[0], half.project(arc()[30:])[0]
        assert scaled == pytest.approx((whole + 0.5) / 2 - 0.5)
        assert draw_paths(self.gray[::2, ::2].copy(), camera(), arc()).shape == (270, 480, 3)

    def test_a_cropped_picture_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="960x400 pixels, its calibration 960x540"):
            draw_paths(self.gray[:400].copy(), camera(), arc())

    def test_text_goes_below_in_as_many_lines_as_it_needs(self) -> None:
        assert write_below(self.gray, "").shape == self.gray.shape
        one, many = write_below(self.gray, "Keep the lane."), write_below(self.gray, "Keep the lane. \N{SNOWMAN} " * 30)
        assert self.gray.shape[0] < one.shape[0] < many.shape[0]
        assert (one[:540] == 128).all()
        assert one[540:].max() > 200
