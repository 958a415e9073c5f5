"""f-theta lenses as the equidistant ones of CameraInfo."""

import numpy as np
import pytest

from alpamayo_ros.evaluation.datasets.f_theta import equidistant_from_f_theta
from alpamayo_ros.sensors.camera_model import CameraModel

FRONT_WIDE = (0.0, 925.9, -4.14, -16.09, 0.0)  # pixels; about what the 120 degree cameras have, 1920x1080
CORNER = float(np.hypot(960, 540))


def test_an_equidistant_lens_is_found_as_it_is() -> None:
    focal, distortion, error = equidistant_from_f_theta((0.0, 900.0, 0.0, -18.0), CORNER)
    assert focal == pytest.approx(900.0)
    assert distortion == pytest.approx((-0.02, 0, 0, 0), abs=1e-6)
    assert error < 1e-6


def test_a_lens_of_the_dataset_is_met_within_a_third_of_a_pixel() -> None:
    focal, distortion, error = equidistant_from_f_theta(FRONT_WIDE, CORNER)
    assert error < 0.34
    model = CameraModel(1920, 1080, focal, focal, 959.5, 539.5, "equidistant", distortion)
    for angle in np.radians([5, 20, 40, 60]):
        ahead = np.array([np.cos(angle), -np.sin(angle), 0.0])  # to the right
        pixels, seen = model.project(ahead)
        assert seen
        wanted = sum(factor * angle**power for power, factor in enumerate(FRONT_WIDE))
        assert pixels[0] - 959.5 == pytest.approx(wanted, abs=0.34)


def test_a_lens_that_folds_back_is_fitted_up_to_the_fold() -> None:
    """500 (t - t^3 / 3) has its largest radius, 333 pixels, at 1 rad."""
    focal, distortion, error = equidistant_from_f_theta((0.0, 500.0, 0.0, -500 / 3), CORNER)
    assert focal == pytest.approx(500.0)
    assert distortion[0] == pytest.approx(-1 / 3, abs=1e-6)
    assert error < 1e-6
