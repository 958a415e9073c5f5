"""One camera's way of painting polygons: projection, cutting at the near plane, haze."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import Array
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA, CameraModel
from alpamayo_ros.sim.ground import ASPHALT, Ground
from alpamayo_ros.sim.things import Faces
from alpamayo_ros.sim.weather import Weather

Image = NDArray[np.uint8]

TEXTURE_CELL, TEXTURE_SIZE = 0.7, 256  # m, cells
SUBPIXELS = 4  # bits
NEAREST_FACE = 0.3  # m in front of the lens; what is nearer gets cut
MARKING = np.array([236.0, 236.0, 228.0])


class CameraView:
    """A pinhole camera, with what of its picture doesn't change.

    Args:
        model: without distortion, and without roll or pitch.
        weather: the colours.
        seed: of the ground's texture.
    """

    def __init__(self, model: CameraModel, weather: Weather, seed: int) -> None:
        self._model, self._weather = model, weather
        self._turn = (model.rotation @ OPTICAL_IN_CAMERA).astype(
            np.float32
        )  # rows of points in ego to the optical frame
        self._offset = (-model.position @ model.rotation @ OPTICAL_IN_CAMERA).astype(np.float32)
        # Ground nearer than this is below the picture, and needs no exact projection.
        self._nearest_ground = 0.9 * model.position[2] * model.focal_y / (model.height - model.center_y)
        self._half_width = max(model.center_x, model.width - model.center_x) / model.focal_x
        rng = np.random.default_rng([seed, 1_000_039])
        texture = 1 + weather.texture * rng.uniform(-1, 1, (TEXTURE_SIZE, TEXTURE_SIZE))
        self._texture = texture.astype(np.float32).ravel()

        rows, columns = np.mgrid[0 : model.height, 0 : model.width]
        rays = model.rays(np.stack([columns, rows], axis=-1).astype(float))
        self._is_ground = rays[..., 2] < -1e-3
        reach = model.position[2] / -rays[self._is_ground][:, 2]
        points = (model.position + rays[self._is_ground] * reach[:, None])[:, :2]
        self._ground_points = (points / TEXTURE_CELL).astype(np.float32)
        share = self._haze(np.linalg.norm(points, axis=1))[:, None]
        self._ground_color = (weather.ground * (1 - share)).astype(np.float32)
        self._ground_haze = (weather.haze * share).astype(np.float32)
        height = np.clip(rays[..., 2], 0, 0.5)[..., None] * 2
        self._empty = (weather.sky_low + (weather.sky_high - weather.sky_low) * height).astype(np.uint8)

    def _haze(self, distance: Array) -> Array:
        return 1 - np.exp(-distance / self._weather.haze_distance)

    def background(self, position: Array, yaw: float) -> Image:
        """Sky above, ground that moves with the world below."""
        c, s = np.float32(np.cos(yaw)), np.float32(np.sin(yaw))
        origin = np.floor(position / TEXTURE_CELL) % TEXTURE_SIZE + position / TEXTURE_CELL % 1
        x, y = self._ground_points[:, 0], self._ground_points[:, 1]
        column = np.floor(c * x - s * y + np.float32(origin[0])).astype(np.int32) & (TEXTURE_SIZE - 1)
        row = np.floor(s * x + c * y + np.float32(origin[1])).astype(np.int32) & (TEXTURE_SIZE - 1)
        shade = self._texture[column * TEXTURE_SIZE + row]
        image = self._empty.copy()
        image[self._is_ground] = self._ground_color * shade[:, None] + self._ground_haze
        return image

    def paint_ground(self, image: Image, corners: Array, ground: Ground) -> None:
        """Paint polygons of the ground.

        Args:
            image: on which.
            corners: [P, K, 2] m, theirs in the vehicle's frame.
            ground: the same ones, of which the rest is taken.
        """
        optical = corners.astype(np.float32) @ self._turn[:2] + self._offset
        depth = optical[..., 2]
        seen = np.flatnonzero(self._may_be_seen(optical, self._nearest_ground))
        if not seen.size:
            return
        optical, depth = optical[seen], depth[seen]
        distance = np.maximum(np.linalg.norm(optical, axis=-1).mean(axis=1), 1.0)
        asphalt = ground.kinds[seen] == ASPHALT
        # A marking narrower than a pixel gets painted one pixel wide: it may only be as bright as its share of that.
        share = np.clip(self._model.focal_x * ground.widths[seen] / distance, 0.0, 1.0)[:, None]
        colors = self._weather.asphalt + (MARKING - self._weather.asphalt) * np.where(asphalt[:, None], 0.0, share)
        self._fill(image, optical, depth, self._hazed(colors, distance), self._nearest_ground)

    def paint_faces(self, image: Image, faces: Faces, position: Array, rotation: Array) -> None:
        """Paint things, in their order.

        Args:
            image: on which.
            faces: in the world.
            position: [2] m, the vehicle in the world.
            rotation: [2, 2], by which row vectors of the world turn into the vehicle's frame.
        """
        lens = self._model.position[:2]
        places = (faces.places - position) @ rotation
        sight = places - lens
        sight /= np.maximum(np.linalg.norm(sight, axis=1, keepdims=True), 1e-6)
        points = np.empty_like(faces.corners)
        fixed, turning = ~faces.turning, faces.turning
        points[fixed, :, :2] = (faces.corners[fixed, :, :2] - position) @ rotation
        across = np.column_stack([sight[:, 1], -sight[:, 0]])[turning]  # to the right, seen from the lens
        points[turning, :, :2] = places[turning][:, None] + faces.corners[turning][:, :, :1] * across[:, None]
        points[..., 2] = faces.corners[..., 2]
        outward = np.einsum("ni,ni->n", faces.normals @ rotation, lens - points[:, :, :2].mean(axis=1))
        facing = (outward > 0) | ~faces.normals.any(axis=1)
        optical = points.astype(np.float32) @ self._turn + self._offset
        seen = np.flatnonzero(self._may_be_seen(optical, NEAREST_FACE) & facing)
        if not seen.size:
            return
        optical = optical[seen]
        distance = np.linalg.norm(optical, axis=-1).mean(axis=1)
        self._fill(image, optical, optical[..., 2], self._hazed(faces.colors[seen], distance), NEAREST_FACE)

    def _may_be_seen(self, optical: NDArray[Any], nearest: float) -> NDArray[np.bool_]:
        """Polygons that are neither behind the near plane nor beside the picture."""
        depth, across = optical[..., 2], optical[..., 0]
        edge = self._half_width * depth
        seen = np.any(depth > nearest, axis=1)
        return np.asarray(seen & np.any(across < edge, axis=1) & np.any(across > -edge, axis=1))

    def _hazed(self, colors: Array, distance: Array) -> list[list[float]]:
        share = self._haze(distance)[:, None]
        return np.round(colors * (1 - share) + self._weather.haze * share).tolist()

    def _fill(
        self, image: Image, optical: NDArray[Any], depth: NDArray[Any], colors: list[list[float]], nearest: float
    ) -> None:
        whole = np.all(depth > nearest, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            pixels = self._fixed_point(optical)
        for i in range(len(colors)):
            polygon = pixels[i] if whole[i] else self._fixed_point(_in_front(optical[i], nearest))
            cv2.fillPoly(image, [polygon], colors[i], cv2.LINE_AA, SUBPIXELS)

    def _fixed_point(self, optical: NDArray[Any]) -> NDArray[np.int32]:
        model = self._model
        scale = [model.focal_x, model.focal_y]
        pixels = optical[..., :2] / optical[..., 2:] * scale + [model.center_x, model.center_y]
        return np.round(np.clip(np.nan_to_num(pixels), -8000, 8000) * 2**SUBPIXELS).astype(np.int32)


def _in_front(polygon: NDArray[Any], nearest: float) -> NDArray[Any]:
    """The part [M, 3] of a polygon [N, 3] of the optical frame that lies in front of the near plane, m.

    Sutherland and Hodgman (Comm. ACM 17, 1974).
    """
    depth = polygon[:, 2]
    after = np.roll(polygon, -1, axis=0)
    front, front_after = np.asarray(depth >= nearest), np.asarray(after[:, 2] >= nearest)
    kept = []
    for i in range(len(polygon)):
        if front[i]:
            kept.append(polygon[i])
        if front[i] != front_after[i]:
            share = (nearest - depth[i]) / (after[i, 2] - depth[i])
            kept.append(polygon[i] + share * (after[i] - polygon[i]))
    return np.array(kept)
