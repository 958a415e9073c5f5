"""NVIDIA's f-theta lenses as ROS knows lenses: the equidistant model of sensor_msgs/CameraInfo."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ANGLES = 400  # that the fit goes through
POWERS = (1, 3, 5, 7, 9)  # of the equidistant model


def equidistant_from_f_theta(polynomial: Sequence[float], radius: float) -> tuple[float, tuple[float, ...], float]:
    """The equidistant lens that is nearest to an f-theta lens, by least squares over the picture.

    f-theta: a ray at the angle t from the axis is seen at a distance of sum p_i t^i pixels from the center. Equidistant
    (OpenCV's fisheye): at f (t + k1 t^3 + k2 t^5 + k3 t^7 + k4 t^9).

    Args:
        polynomial: p_0, p_1, ... in pixels; p_0 is 0 but for rounding.
        radius: pixels from the center to the picture's furthest corner.

    Returns:
        f in pixels, (k1, k2, k3, k4), and the largest difference in pixels within the picture.
    """
    angles = np.linspace(0, _angle_at(polynomial, radius), ANGLES)
    wanted = np.polynomial.polynomial.polyval(angles, list(polynomial))
    powers = np.stack([angles**power for power in POWERS], axis=-1)
    fitted = np.linalg.lstsq(powers, wanted, rcond=None)[0]
    error = float(np.abs(powers @ fitted - wanted).max())
    return float(fitted[0]), tuple(float(value / fitted[0]) for value in fitted[1:]), error


def _angle_at(polynomial: Sequence[float], radius: float) -> float:
    """The angle, rad, that is seen at this radius; the widest one before the polynomial folds back, if that is less."""
    angles = np.linspace(0, np.pi, 10 * ANGLES)
    seen = np.polynomial.polynomial.polyval(angles, list(polynomial))
    folded = np.flatnonzero(np.diff(seen) <= 0)
    growing = slice(0, int(folded[0]) + 1 if folded.size else len(seen))
    return float(np.interp(radius, seen[growing], angles[growing]))
