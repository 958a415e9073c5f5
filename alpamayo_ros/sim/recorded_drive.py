"""Drives of the expert driver as data to learn from: what it saw, what it did next, and why. Deterministic by seed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.rotation import rotations_about_z
from alpamayo_ros.core.types import HORIZON, Array
from alpamayo_ros.sim.car_plans import AHEAD_SHARE
from alpamayo_ros.sim.closed_loop import Observer
from alpamayo_ros.sim.disturbance import Disturbance
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.other_routes import OtherRoutes
from alpamayo_ros.sim.policies import Policy
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import CAMERAS, rig
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.sim.shared_wheel import SharedWheel
from alpamayo_ros.sim.vehicle import FRONT
from alpamayo_ros.sim.world import World

IMAGE_SIZE = (96, 160)  # pixels, height and width
PERIOD_S = 0.1


@dataclass(frozen=True, eq=False)
class RecordedDrive:
    """One drive of the expert driver, or of a learner that it watches, sampled at 10 Hz.

    `futures` are the driver's plan from the state it is in, by what can be seen then: no push comes, a car ahead brakes
    on for about a second and speeds up never, and a light stays as it is. Where the vehicle then was is `driven`.
    """

    images: NDArray[np.uint8]  # [T, 4, H, W, 3] RGB, cameras in the model's order: left, front wide, right, front tele
    positions: Array  # [T, 3] m in the world (x east, y north, z up), of the vehicle's origin: the rear axle, on ground
    rotations: Array  # [T, 3, 3] world <- vehicle
    speeds: Array  # [T] m/s
    futures: Array  # [T, 64, 3] m in the vehicle's frame then, 0.1 to 6.4 s on
    future_rotations: Array  # [T, 64, 3, 3] likewise
    sentences: tuple[str, ...]  # [T]
    classes: NDArray[np.int64]  # [T] index into SENTENCE_CLASSES
    navigation: tuple[str | None, ...]  # [T] as "Turn left in 30m"; None away from junctions
    cars: Array  # [T, 3] of the car ahead that the driver minds: m to its rear bumper, m/s, m/s^2; NaN: of none

    @property
    def driven(self) -> Array:
        """[T - 64, 64, 3] m in the vehicle's frame then: where it was 0.1 to 6.4 s later, as far as the drive goes."""
        count = max(len(self.positions) - HORIZON, 0)
        later = self.positions[np.arange(count)[:, None] + np.arange(1, HORIZON + 1)]
        return np.einsum("tji,tkj->tki", self.rotations[:count], later - self.positions[:count, None])

    def first(self, count: int) -> RecordedDrive:
        """Its first moments alone, so many."""
        return replace(self, **{field.name: getattr(self, field.name)[:count] for field in fields(self)})


def record_drive(
    seed: int,
    seconds: float,
    *,
    image_size: tuple[int, int] = IMAGE_SIZE,
    disturbed: bool = False,
    learner: Policy | None = None,
    other_routes: float = 0.0,
    ahead_share: float = AHEAD_SHARE,
) -> RecordedDrive:
    """Drive for so long in the world of that seed.

    Args:
        seed: of the world and everything in it.
        seconds: the drive's length.
        image_size: height and width, pixels.
        disturbed: push the vehicle off its lane now and then; `futures` then show how to get back.
        learner: whose paths are followed; `futures` then show what the expert would do there.
        other_routes: share of the ticks before junctions whose plan, sentence and navigation are those of another way
            out than the vehicle will take.
        ahead_share: of the roads, that have a car ahead.

    Raises:
        ConfigurationError: a duration or size that can't be.
    """
    height, width = image_size
    world = World.for_seconds(seed, seconds, ahead_share)
    journey = Journey(world)
    disturbance = Disturbance(seed) if disturbed else None
    observer = Observer(Renderer(world, rig(width, height)))
    wheel = SharedWheel(learner) if learner is not None else None
    others = OtherRoutes(seed, other_routes) if other_routes else None
    count = max(round(seconds / PERIOD_S), 1)
    images = np.empty((count, len(CAMERAS), height, width, 3), np.uint8)
    poses, plans, speeds = np.empty((count, 3)), np.empty((count, HORIZON, 3)), np.empty(count)
    classes, navigation, cars = np.empty(count, np.int64), list[str | None](), np.full((count, 3), np.nan)
    for tick in range(count):
        vehicle = journey.vehicle
        observation = observer.look(journey)
        images[tick] = np.stack(list(observer.pictures.values()))
        poses[tick], speeds[tick], plans[tick] = vehicle[:3], vehicle.speed, journey.plan()
        classes[tick] = journey.reason
        navigation.append(journey.navigation)
        car = journey.situation.car
        if car is not None:
            cars[tick] = car.rear - FRONT - journey.along, car.speed, car.acceleration
        advice = others.look(journey, PERIOD_S) if others is not None else None
        if advice is not None:
            plans[tick], classes[tick], navigation[tick] = advice.plan, advice.reason, advice.navigation
        if wheel is not None:
            wheel.look(observation, journey)
        for _ in range(round(PERIOD_S / STEP_S)):
            push = disturbance.push(journey.vehicle.speed, STEP_S) if disturbance else (0.0, 0.0)
            if wheel is not None:
                wheel.drive(journey, push)
            else:
                journey.drive(push)
    futures, future_rotations = _in_vehicle(poses, plans)
    return RecordedDrive(
        images=images,
        positions=np.column_stack([poses[:, :2], np.zeros(count)]),
        rotations=rotations_about_z(poses[:, 2]),
        speeds=speeds,
        futures=futures,
        future_rotations=future_rotations,
        sentences=tuple(SENTENCE_CLASSES[each] for each in classes),
        classes=classes,
        navigation=tuple(navigation),
        cars=cars,
    )


def _in_vehicle(poses: Array, plans: Array) -> tuple[Array, Array]:
    """Plans [T, 64, 3] (x, y, yaw in the world) in the frames of their poses [T, 3]: positions and rotations."""
    offset = plans[..., :2] - poses[:, None, :2]
    c, s = np.cos(poses[:, 2, None]), np.sin(poses[:, 2, None])
    x, y = c * offset[..., 0] + s * offset[..., 1], c * offset[..., 1] - s * offset[..., 0]
    return np.stack([x, y, np.zeros_like(x)], axis=-1), rotations_about_z(plans[..., 2] - poses[:, None, 2])
