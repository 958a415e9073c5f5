"""What stands and drives beside and on the road: faces in space, each flat, with a colour."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import Array
from alpamayo_ros.sim.car_plans import CAR_HEIGHT, CAR_LENGTH, CAR_WIDTH
from alpamayo_ros.sim.ground import ROAD_SIDE
from alpamayo_ros.sim.path import Path
from alpamayo_ros.sim.traffic import Car, Traffic
from alpamayo_ros.sim.world import JUNCTION_REACH, Control, Junction, World

CORNERS = 8  # of every face; those with fewer repeat their last
POST_SPACING, POST_OFFSET, POST_HEIGHT, POST_WIDTH = 14.0, ROAD_SIDE + 0.8, 1.0, 0.14  # m
TREE_SPACING = 9.0
SIGN_OFFSET = ROAD_SIDE + 0.7
POST, TRUNK, POLE = (225, 225, 222), (92, 70, 50), (90, 92, 96)
SIGN, CASE = (200, 24, 30), (28, 30, 34)
RED_LAMP, GREEN_LAMP, DARK_LAMP = (255, 40, 30), (40, 255, 110), (52, 54, 54)
WINDOW, TYRE, TAIL, BRAKE, HEAD = (36, 42, 52), (30, 30, 32), (120, 18, 22), (255, 36, 30), (250, 246, 224)
OCTAGON = np.radians(np.arange(8) * 45 + 22.5)


@dataclass(frozen=True, eq=False)
class Faces:
    """N flat faces, in the order of their things; each thing's faces in the order in which they are painted."""

    corners: Array  # [N, CORNERS, 3] m in the world; of faces that turn to the viewer, relative to their place
    places: Array  # [N, 2] m: of their things, whose distance decides what hides what
    turning: np.ndarray  # [N] bool: they turn to the viewer, x being to the right as he sees them, and y ahead
    normals: Array  # [N, 2] of the others: seen only from this side; 0 0: from everywhere
    colors: Array  # [N, 3]

    @classmethod
    def of(cls, faces: Iterable[tuple[Array, Array, bool, Array, tuple[int, int, int]]]) -> Faces:
        """From corners, place, turning, normal and colour of each."""
        corners, places, turning, normals, colors = zip(*faces, strict=True)
        return cls(np.array(corners), np.array(places), np.array(turning), np.array(normals), np.array(colors, float))

    def and_also(self, other: Faces) -> Faces:
        """Both."""
        names = ("corners", "places", "turning", "normals", "colors")
        return Faces(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


Face = tuple[Array, Array, bool, Array, tuple[int, int, int]]
NO_SIDE = np.zeros(2)


def standing(world: World) -> Faces:
    """Posts, trees, signs and the poles of lights."""
    rng = np.random.default_rng([world.seed, 1_000_033])
    roads = [leg.middle for leg in world.legs]
    roads += [branch for junction in world.junctions for branch in junction.branches.values()]
    asphalt = np.concatenate([road.xy[::8] for road in roads] + [junction.middle[None] for junction in world.junctions])
    faces: list[Face] = []
    for road in roads:
        for left in (-POST_OFFSET, POST_OFFSET):
            for at in np.arange(POST_SPACING / 2, road.length, POST_SPACING).tolist():
                faces.append(_board(road.points(at, left), (0, POST_WIDTH), (0, POST_HEIGHT), POST))
        faces += _trees(rng, road, asphalt)
    for junction in world.junctions:
        if junction.control is Control.STOP_SIGN:
            faces += _stop_sign(junction)
    return Faces.of(faces)


def moving(traffic: Traffic, world: World, along: float) -> list[Faces]:
    """Cars, and the lights of the junctions near that distance along the route, m."""
    faces = [face for car in traffic.cars for face in _car(car)]
    for number, junction in enumerate(world.junctions):
        near = junction.begin - 200 < along < junction.end + 30
        if near and junction.control in (Control.RED_LIGHT, Control.GREEN_LIGHT):
            faces += _light(junction, red=traffic.is_red(number))
    return [Faces.of(faces)] if faces else []


def _board(place: Array, across: tuple[float, float], height: tuple[float, float], color: tuple[int, int, int]) -> Face:
    """An upright rectangle that turns to the viewer: its middle and width across, its lower and upper edge, m."""
    left, right = across[0] - across[1] / 2, across[0] + across[1] / 2
    corners = [(left, 0, height[0]), (right, 0, height[0]), (right, 0, height[1]), (left, 0, height[1])]
    return _padded(corners), place, True, NO_SIDE, color


def _disc(place: Array, middle: float, radius: tuple[float, float], color: tuple[int, int, int]) -> Face:
    """An upright octagon that turns to the viewer: the height of its middle, its half width and half height, m."""
    corners = np.column_stack([radius[0] * np.cos(OCTAGON), 0 * OCTAGON, middle + radius[1] * np.sin(OCTAGON)])
    return corners, place, True, NO_SIDE, color


def _trees(rng: np.random.Generator, road: Path, asphalt: Array) -> list[Face]:
    faces: list[Face] = []
    density = rng.uniform(0.1, 0.9)
    for at in np.arange(0.0, road.length, TREE_SPACING).tolist():
        for side in (-1, 1):
            there, away, size, green = (
                rng.random() < density,
                rng.uniform(4, 14),
                rng.uniform(1.2, 2.6),
                rng.uniform(0.7, 1.2),
            )
            place = road.points(at + rng.uniform(0, TREE_SPACING), float(side * (ROAD_SIDE + away)))
            if there and np.linalg.norm(asphalt - place, axis=1).min() > ROAD_SIDE + size + 0.5:
                crown = tuple(int(value * green) for value in (56, 84, 40))
                faces.append(_board(place, (0, 0.35), (0, size * 1.4), TRUNK))
                faces.append(_disc(place, size * 1.9, (size, size * 1.2), (crown[0], crown[1], crown[2])))
    return faces


def _beside_line(junction: Junction, ahead: float, left: float) -> Array:
    """A place [2] m, so far ahead of a junction's stop line and left of its road's middle."""
    forward = np.array([np.cos(junction.heading), np.sin(junction.heading)])
    return junction.middle + (ahead - JUNCTION_REACH) * forward + left * np.array([-forward[1], forward[0]])


def _stop_sign(junction: Junction) -> list[Face]:
    place = _beside_line(junction, 0.3, -SIGN_OFFSET)
    return [
        _board(place, (0, 0.1), (0, 2.0), POLE),
        _disc(place, 2.3, (0.55, 0.55), (240, 240, 240)),
        _disc(place, 2.3, (0.47, 0.47), SIGN),
        _board(place, (0, 0.6), (2.2, 2.4), (240, 240, 240)),
    ]


def _light(junction: Junction, *, red: bool) -> list[Face]:
    """One at the line and one beyond the junction."""
    faces: list[Face] = []
    for ahead, left in ((0.5, -SIGN_OFFSET), (2 * JUNCTION_REACH, -SIGN_OFFSET)):
        place = _beside_line(junction, ahead, left)
        faces += [
            _board(place, (0, 0.14), (0, 2.3), POLE),
            _board(place, (0, 0.9), (2.3, 4.1), CASE),
            _disc(place, 3.6, (0.36, 0.36), RED_LAMP if red else DARK_LAMP),
            _disc(place, 2.8, (0.36, 0.36), DARK_LAMP if red else GREEN_LAMP),
        ]
    return faces


def _car(car: Car) -> list[Face]:
    place = car.plan.path.points(car.along)
    heading = float(car.plan.path.heading_at(car.along))
    paint = car.plan.paint
    half, side = CAR_LENGTH / 2, CAR_WIDTH / 2
    lamps = BRAKE if car.is_braking else TAIL
    roof = tuple(min(int(value * 1.08), 255) for value in paint)
    cabin = _box(place, heading, (-half + 0.35, half - 1.5), side - 0.12, (0.85, CAR_HEIGHT), (WINDOW,) * 4, (*roof,))
    body = _box(
        place,
        heading,
        (-half, half),
        side,
        (0.22, 0.85),
        (paint, _darker(paint), _darker(paint), _darker(paint)),
        paint,
    )
    faces = [
        *_box(place, heading, (-half + 0.3, half - 0.3), side - 0.05, (0.0, 0.3), (TYRE,) * 4, TYRE),
        *body,
        *cabin,
    ]
    for y in (side - 0.25, -side + 0.25):
        faces.append(_plate(place, heading, -half - 0.01, y, (0.55, 0.8), lamps))
        faces.append(_plate(place, heading, half + 0.01, y, (0.5, 0.7), HEAD))
    return faces


def _darker(paint: tuple[int, int, int]) -> tuple[int, int, int]:
    return (int(paint[0] * 0.8), int(paint[1] * 0.8), int(paint[2] * 0.8))


def _box(
    place: Array,
    heading: float,
    along: tuple[float, float],
    side: float,
    height: tuple[float, float],
    walls: tuple[tuple[int, int, int], ...],
    top: tuple[int, ...],
) -> list[Face]:
    """A box with its rear, left, front and right wall, and its top."""
    (x0, x1), (z0, z1) = along, height
    ring = [(x0, -side), (x0, side), (x1, side), (x1, -side)]
    faces: list[Face] = []
    for number, color in enumerate(walls):
        (ax, ay), (bx, by) = ring[number], ring[(number + 1) % 4]
        corners = [(ax, ay, z0), (bx, by, z0), (bx, by, z1), (ax, ay, z1)]
        normal = np.array([(-1.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, -1.0)][number])
        faces.append((_placed(corners, place, heading), place, False, _turned(normal, heading), color))
    if z1 < 1.4:  # cameras look down on nothing higher
        roof = _placed([(x, y, z1) for x, y in ring], place, heading)
        faces.append((roof, place, False, NO_SIDE, (top[0], top[1], top[2])))
    return faces


def _plate(
    place: Array, heading: float, x: float, y: float, height: tuple[float, float], color: tuple[int, int, int]
) -> Face:
    """A lamp on the front or rear."""
    corners = [(x, y - 0.22, height[0]), (x, y + 0.22, height[0]), (x, y + 0.22, height[1]), (x, y - 0.22, height[1])]
    normal = _turned(np.array([np.sign(x), 0.0]), heading)
    return _placed(corners, place, heading), place, False, normal, color


def _turned(vector: Array, heading: float) -> Array:
    c, s = np.cos(heading), np.sin(heading)
    return np.array([c * vector[0] - s * vector[1], s * vector[0] + c * vector[1]])


def _placed(corners: Sequence[tuple[float, float, float]], place: Array, heading: float) -> Array:
    points = _padded(corners)
    c, s = np.cos(heading), np.sin(heading)
    x, y = points[:, 0].copy(), points[:, 1].copy()
    points[:, 0], points[:, 1] = place[0] + c * x - s * y, place[1] + s * x + c * y
    return points


def _padded(corners: Sequence[tuple[float, float, float]]) -> Array:
    return np.array([*corners, *[corners[-1]] * (CORNERS - len(corners))], float)
