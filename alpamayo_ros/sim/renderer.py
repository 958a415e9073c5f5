"""Pictures of the world by projection and polygon fill: sky, ground, roads, and what stands and drives there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import Array
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sim.camera_view import CameraView
from alpamayo_ros.sim.ground import Ground
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.things import Faces, moving, standing
from alpamayo_ros.sim.weather import Weather
from alpamayo_ros.sim.world import World

Image = NDArray[np.uint8]

FARTHEST = 160.0  # m; more is smaller than a pixel
NOISE_TILES = 16  # of a camera's noise; each picture has one of them


class Renderer:
    """Draws what cameras on the vehicle see of a world on flat ground.

    Args:
        world: what doesn't change.
        cameras: by name.
    """

    def __init__(self, world: World, cameras: dict[str, CameraModel]) -> None:
        self.cameras = cameras
        self._world, self._weather = world, Weather.random(world.seed)
        self._ground, self._standing = Ground.of(world), standing(world)
        self._views = {name: CameraView(model, self._weather, world.seed) for name, model in cameras.items()}
        rng = np.random.default_rng([world.seed, 1_000_037])
        shapes = {(model.height, model.width) for model in cameras.values()}
        self._noise = {
            shape: rng.normal(0, self._weather.noise, (NOISE_TILES, *shape, 3)).round().astype(np.int16)
            for shape in shapes
        }

    def draw(self, journey: Journey, number: int = 0) -> dict[str, Image]:
        """The cameras' pictures [H, W, 3] RGB of this moment, by name; the number picks their noise."""
        position, yaw = np.array(journey.vehicle[:2]), journey.vehicle.yaw
        ground = self._near_ground(position)
        faces = self._near_faces(position, moving(journey.traffic, self._world, journey.along))
        rotation = np.array([[np.cos(yaw), -np.sin(yaw)], [np.sin(yaw), np.cos(yaw)]])  # row vectors to the vehicle's
        pictures = {}
        for place, (name, view) in enumerate(self._views.items()):
            image = view.background(position, yaw)
            view.paint_ground(image, (ground.corners - position) @ rotation, ground)
            if faces is not None:
                view.paint_faces(image, faces, position, rotation)
            noise = self._noise[image.shape[0], image.shape[1]][(number * 5 + place * 7) % NOISE_TILES]
            bright = image * np.float32(self._weather.brightness) + noise
            pictures[name] = np.clip(bright, 0, 255).astype(np.uint8)
        return pictures

    def _near_ground(self, position: Array) -> Ground:
        distance = np.linalg.norm(self._ground.centers - position, axis=1)
        near = np.flatnonzero(distance < FARTHEST)
        g = self._ground
        return Ground(g.corners[near], g.kinds[near], g.widths[near], g.centers[near], g.radii[near])

    def _near_faces(self, position: Array, extra: list[Faces]) -> Faces | None:
        """Those in sight, the farthest things first."""
        distance = np.linalg.norm(self._standing.places - position, axis=1)
        near = _chosen(self._standing, np.flatnonzero(distance < FARTHEST))
        for faces in extra:
            near = near.and_also(faces)
        if not len(near.places):
            return None
        distance = np.linalg.norm(near.places - position, axis=1)
        # a thing's faces are at one place, and the sort is stable: they stay in their order
        return _chosen(near, np.argsort(-distance, kind="stable"))


def _chosen(faces: Faces, which: NDArray[np.intp]) -> Faces:
    return Faces(
        faces.corners[which], faces.places[which], faces.turning[which], faces.normals[which], faces.colors[which]
    )
