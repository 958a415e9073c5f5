"""A calibrated camera on the vehicle: points of ego to pixels, and pixels to rays.

Frames: a *camera* frame looks along x (y left, z up); its *optical* frame along z (x right, y down); see REP-103.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import Array, ConfigurationError

# Columns are the optical axes in the camera frame: optical x = -y, optical y = -z, optical z = x.
OPTICAL_IN_CAMERA: Array = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
# sensor_msgs/distortion_models.hpp, with the numbers of coefficients that each may have; 0 is none at all.
DISTORTION_MODELS = {"plumb_bob": (0, 4, 5), "rational_polynomial": (0, 8), "equidistant": (0, 4)}
ITERATIONS = 50
SAMPLES = 1000  # of the lens function, to find out how far it can be trusted


@dataclass(frozen=True, eq=False)
class CameraModel:
    """Intrinsics as in sensor_msgs/CameraInfo, and the camera's mounting in ego.

    Formulas: OpenCV's "Camera Calibration and 3D Reconstruction" for plumb_bob (k1, k2, p1, p2, k3) and
    rational_polynomial (and k4, k5, k6), and its fisheye model for equidistant (k1 to k4).

    Raises:
        ConfigurationError: an unknown distortion model, a wrong number of coefficients, sizes that can't be.
    """

    width: int
    height: int
    focal_x: float  # pixels
    focal_y: float
    center_x: float
    center_y: float
    distortion_model: str = "plumb_bob"
    distortion: Sequence[float] = ()
    position: Array = field(default_factory=lambda: np.zeros(3))  # [3] m, of the camera in ego
    rotation: Array = field(default_factory=lambda: np.eye(3))  # [3, 3] ego <- camera frame

    def __post_init__(self) -> None:
        if self.distortion_model not in DISTORTION_MODELS:
            raise ConfigurationError(
                f"distortion model {self.distortion_model!r}, expected one of {', '.join(DISTORTION_MODELS)}"
            )
        counts = DISTORTION_MODELS[self.distortion_model]
        if len(self.distortion) not in counts:
            raise ConfigurationError(
                f"{len(self.distortion)} coefficients for {self.distortion_model}, "
                f"expected {' or '.join(map(str, counts))}"
            )
        numbers = (self.focal_x, self.focal_y, self.center_x, self.center_y, *self.distortion)
        if not (np.isfinite(numbers).all() and np.isfinite(self.position).all()):
            raise ConfigurationError(
                f"focal lengths {self.focal_x}, {self.focal_y}, centre {self.center_x}, {self.center_y}, distortion "
                f"{list(self.distortion)} at {np.asarray(self.position).tolist()} m: expected finite numbers"
            )
        if self.width <= 0 or self.height <= 0 or not (self.focal_x > 0 and self.focal_y > 0):
            raise ConfigurationError(
                f"a camera of {self.width}x{self.height} pixels and focal lengths {self.focal_x}, {self.focal_y}: "
                "expected all of them positive; is it calibrated?"
            )

    @property
    def matrix(self) -> Array:
        """K [3, 3]."""
        return np.array([[self.focal_x, 0, self.center_x], [0, self.focal_y, self.center_y], [0, 0, 1.0]])

    def to_optical(self, points: Array) -> Array:
        """Points [..., 3] m in ego to the optical frame."""
        return (points - self.position) @ self.rotation @ OPTICAL_IN_CAMERA

    def project(self, points: Array) -> tuple[Array, NDArray[np.bool_]]:
        """Points [..., 3] m in ego to pixels [..., 2] (x right, y down) and whether the camera sees them [...].

        Unseen are points behind the camera, outside of the picture, and where the lens function has folded back: beyond
        the widest angle of the picture polynomials are free to send points back into it. Their pixels are NaN unless
        they are merely outside.
        """
        optical = self.to_optical(np.asarray(points, float))
        x, y, z = np.moveaxis(optical, -1, 0)
        radius = np.hypot(x, y)
        angle = np.arctan2(radius, z)
        valid = angle < self._largest_angle
        safe = np.where(valid[..., None], optical, [0.0, 0.0, 1.0])
        a, b = self._distort(safe)
        pixels = np.stack([a, b], axis=-1) * self._focal + [self.center_x, self.center_y]
        pixels = np.where(valid[..., None], pixels, np.nan)
        inside = (pixels > -0.5) & (pixels < np.array([self.width, self.height]) - 0.5)
        return pixels, valid & inside.all(axis=-1)

    def rays(self, pixels: Array) -> Array:
        """Pixels [..., 2] to unit directions [..., 3] in ego."""
        a, b = np.moveaxis((np.asarray(pixels, float) - [self.center_x, self.center_y]) / self._focal, -1, 0)
        if self.distortion_model == "equidistant":
            radius = np.hypot(a, b)
            theta = radius
            for _ in range(ITERATIONS):  # Newton
                bent, slope = self._bend(theta)
                theta = theta - (bent - radius) / slope
            scale = np.sinc(theta / np.pi) * theta / np.maximum(radius, 1e-12)
            optical = np.stack([a * scale, b * scale, np.cos(theta)], axis=-1)
        else:
            x, y = a, b
            for _ in range(ITERATIONS):  # a fixed point, as in OpenCV's undistortPoints
                radial, dx, dy = self._bend_and_shift(x, y)
                x, y = (a - dx) / radial, (b - dy) / radial
            optical = np.stack([x, y, np.ones_like(x)], axis=-1)
        directions = optical @ OPTICAL_IN_CAMERA.T @ self.rotation.T
        return directions / np.linalg.norm(directions, axis=-1, keepdims=True)

    @property
    def _focal(self) -> Array:
        return np.array([self.focal_x, self.focal_y])

    def _coefficients(self, count: int) -> Array:
        return np.array([*self.distortion, *[0.0] * (count - len(self.distortion))])

    def _distort(self, optical: Array) -> tuple[Array, Array]:
        """Normalized image coordinates of optical points in front of the lens."""
        x, y, z = np.moveaxis(optical, -1, 0)
        if self.distortion_model == "equidistant":
            radius = np.hypot(x, y)
            bent, _ = self._bend(np.arctan2(radius, z))
            scale = bent / np.maximum(radius, 1e-12)  # on the axis 0, as x and y are
            return x * scale, y * scale
        x, y = x / z, y / z
        radial, dx, dy = self._bend_and_shift(x, y)
        return x * radial + dx, y * radial + dy

    def _bend(self, theta: Array) -> tuple[Array, Array]:
        """Equidistant: the radius in the picture at an angle from the axis, rad, and its derivative."""
        k1, k2, k3, k4 = self._coefficients(4)
        t2 = theta**2
        bent = theta * (1 + t2 * (k1 + t2 * (k2 + t2 * (k3 + t2 * k4))))
        return bent, 1 + t2 * (3 * k1 + t2 * (5 * k2 + t2 * (7 * k3 + t2 * 9 * k4)))

    def _bend_and_shift(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """The polynomial lenses: radial factor and tangential shifts at x/z, y/z."""
        k1, k2, p1, p2, k3, k4, k5, k6 = self._coefficients(8)
        r2 = x * x + y * y
        radial = (1 + r2 * (k1 + r2 * (k2 + r2 * k3))) / (1 + r2 * (k4 + r2 * (k5 + r2 * k6)))
        return radial, 2 * p1 * x * y + p2 * (r2 + 2 * x * x), p1 * (r2 + 2 * y * y) + 2 * p2 * x * y

    @cached_property
    def _largest_angle(self) -> float:
        """Up to which angle from the optical axis, rad, the radius in the picture grows with the angle."""
        end = np.pi if self.distortion_model == "equidistant" else np.pi / 2
        angles = np.linspace(0, end, SAMPLES, endpoint=False)
        axis = np.stack([np.sin(angles), np.zeros(SAMPLES), np.cos(angles)], axis=-1)
        radius = self._distort(axis)[0]
        folded = np.flatnonzero(np.diff(radius) <= 0)
        return float(angles[folded[0]]) if folded.size else float(end)
