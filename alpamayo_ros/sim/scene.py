"""Pictures of a road: sky, textured ground, asphalt, lane markings and posts, by projection and polygon fill."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import Array
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sim.road import Road

Image = NDArray[np.uint8]

LANE_WIDTH = 3.5  # m; one lane each way
SHOULDER = 0.5
MARKING_WIDTH = 0.2
DASH, DASH_PERIOD = 3.0, 9.0  # m
POST_SPACING, POST_OFFSET, POST_HEIGHT, POST_WIDTH = 12.0, LANE_WIDTH + 1.2, 1.0, 0.15
FARTHEST = 150.0  # m along the road; more is smaller than a pixel
BEHIND = 30.0
STEP = 1.0  # m, of the pieces that the road is painted in
NEAREST = 0.05  # m in front of the lens; polygons are cut there

SKY_LOW, SKY_HIGH = np.array([196.0, 214.0, 232.0]), np.array([96.0, 150.0, 214.0])  # RGB
GRASS, HAZE = np.array([86.0, 112.0, 58.0]), np.array([178.0, 192.0, 196.0])
ASPHALT, MARKING, POST = (84, 84, 88), (235, 235, 228), (225, 120, 40)
HAZE_DISTANCE = 120.0  # m, where the ground has lost 63 % of its colour
TEXTURE_CELL, TEXTURE_SIZE = 0.7, 256  # m, cells
SUBPIXELS = 4  # bits


class Scene:
    """Draws what cameras see of a road from poses on flat ground."""

    def __init__(self, road: Road, cameras: dict[str, CameraModel], seed: int) -> None:
        self._road = road
        self._texture = np.random.default_rng(seed).uniform(0.75, 1.25, (TEXTURE_SIZE, TEXTURE_SIZE))
        self._views = {name: _View(model) for name, model in cameras.items()}

    def draw(self, camera: str, position: Array, yaw: float, along: float) -> Image:
        """The camera's picture [H, W, 3], RGB.

        Args:
            camera: its name.
            position: [2] m of the vehicle in the road's world.
            yaw: rad, its direction there.
            along: m, the vehicle's distance along the road: what is near it gets drawn.
        """
        view = self._views[camera]
        image = view.background(position, yaw, self._texture)
        begin = np.floor(max(along - BEHIND, 0.0))
        # Far pieces first; edges at whole meters, so that dashes and posts stay where they are in the world.
        edges = np.arange(begin, min(along + FARTHEST, self._road.distance[-1]), STEP)[::-1]
        side = LANE_WIDTH + SHOULDER
        self._strip(view, image, position, yaw, edges, -side, side, ASPHALT)
        for middle in (-LANE_WIDTH, 0.0, LANE_WIDTH):
            drawn = edges if middle else edges[edges % DASH_PERIOD <= DASH]
            self._strip(
                view, image, position, yaw, drawn, middle - MARKING_WIDTH / 2, middle + MARKING_WIDTH / 2, MARKING
            )
        self._posts(view, image, position, yaw, edges[edges % POST_SPACING == 0])
        return image

    def _strip(
        self,
        view: _View,
        image: Image,
        position: Array,
        yaw: float,
        edges: Array,
        right: float,
        left: float,
        color: tuple[int, int, int],
    ) -> None:
        rights, lefts = self._road.points(edges, right), self._road.points(edges, left)
        together = np.abs(np.diff(edges)) < 1.5 * STEP  # else there is a gap between two dashes
        quads = np.stack([rights[:-1], rights[1:], lefts[1:], lefts[:-1]], axis=1)[together]
        corners = np.concatenate([to_ego(quads, position, yaw), np.zeros((*quads.shape[:2], 1))], axis=-1)
        view.fill(image, corners, color)

    def _posts(self, view: _View, image: Image, position: Array, yaw: float, at: Array) -> None:
        for left in (-POST_OFFSET, POST_OFFSET):
            feet = to_ego(self._road.points(at, left), position, yaw)
            across = np.column_stack([-feet[:, 1], feet[:, 0]])  # posts are round: as wide from everywhere
            across *= POST_WIDTH / 2 / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-6)
            ground, top = np.zeros((len(feet), 1)), np.full((len(feet), 1), POST_HEIGHT)
            sides = [(feet - across, ground), (feet + across, ground), (feet + across, top), (feet - across, top)]
            view.fill(image, np.stack([np.concatenate(side, axis=1) for side in sides], axis=1), POST)


class _View:
    """One camera, with what of its picture doesn't change."""

    def __init__(self, model: CameraModel) -> None:
        self._model = model
        rows, columns = np.mgrid[0 : model.height, 0 : model.width]
        rays = model.rays(np.stack([columns, rows], axis=-1).astype(float))
        self._ground = rays[..., 2] < -1e-3
        down = np.where(self._ground, rays[..., 2], -1.0)
        reach = model.position[2] / -down
        self._ground_points = (model.position + rays * reach[..., None])[self._ground][:, :2]
        height = np.clip(rays[..., 2], 0, 0.5)[..., None] * 2
        self._sky = SKY_LOW + (SKY_HIGH - SKY_LOW) * height
        self._haze = 1 - np.exp(-np.linalg.norm(self._ground_points, axis=1) / HAZE_DISTANCE)[:, None]

    def background(self, position: Array, yaw: float, texture: Array) -> Image:
        """Sky above, grass that moves with the world below."""
        c, s = np.cos(yaw), np.sin(yaw)
        world = self._ground_points @ np.array([[c, s], [-s, c]]) + position
        cells = np.floor(world / TEXTURE_CELL).astype(int) % TEXTURE_SIZE
        grass = GRASS * texture[cells[:, 0], cells[:, 1]][:, None]
        pixels = self._sky.copy()
        pixels[self._ground] = grass * (1 - self._haze) + HAZE * self._haze
        return pixels.astype(np.uint8)

    def fill(self, image: Image, corners: Array, color: tuple[int, int, int]) -> None:
        """Paint convex polygons [N, 4, 3] (m in ego), in order."""
        depth = self._model.to_optical(corners)[..., 2]
        whole = np.asarray(np.all(depth > NEAREST, axis=1))
        pixels, _ = self._model.project(corners)
        size = np.array([self._model.width, self._model.height])
        sides = np.concatenate([pixels < -1, pixels > size], axis=-1)
        outside = whole & np.any(np.all(sides, axis=1), axis=-1)
        fixed = _fixed_point(np.nan_to_num(pixels))
        for i in np.flatnonzero((depth > NEAREST).any(axis=1) & ~outside):
            polygon = fixed[i] if whole[i] else self._cut(corners[i], depth[i])
            cv2.fillConvexPoly(image, polygon, color, cv2.LINE_AA, SUBPIXELS)

    def _cut(self, polygon: Array, depth: Array) -> NDArray[np.int32]:
        return _fixed_point(self._model.project(_in_front(polygon, depth))[0])


def _fixed_point(pixels: Array) -> NDArray[np.int32]:
    return np.round(np.clip(pixels, -8000, 8000) * 2**SUBPIXELS).astype(np.int32)


def _in_front(polygon: Array, depth: Array) -> Array:
    """The part [M, 3] of a convex polygon [N, 3] that lies at least NEAREST in front of the lens."""
    kept = []
    for i in range(len(polygon)):
        before = i - 1
        if (depth[before] >= NEAREST) != (depth[i] >= NEAREST):
            share = (NEAREST - depth[before]) / (depth[i] - depth[before])
            kept.append(polygon[before] + share * (polygon[i] - polygon[before]))
        if depth[i] >= NEAREST:
            kept.append(polygon[i])
    return np.array(kept)


def to_ego(points: Array, position: Array, yaw: float) -> Array:
    """Points [..., 2] of the world in the frame of a vehicle that stands there."""
    c, s = np.cos(yaw), np.sin(yaw)
    return (points - position) @ np.array([[c, -s], [s, c]])
