"""What is painted on the ground: asphalt, lane markings, junctions and stop lines, as polygons of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import Array
from alpamayo_ros.sim.path import Path
from alpamayo_ros.sim.world import IN_LANE, JUNCTION_REACH, LANE_WIDTH, Junction, World

CORNERS = 18  # of every polygon; those with fewer repeat their last
SHOULDER = 0.5  # m of asphalt beside the edge lines
ROAD_SIDE = LANE_WIDTH + SHOULDER
MARKING_WIDTH = 0.18  # m
STOP_LINE_WIDTH = 0.5
DASH, DASH_PERIOD = 3.0, 9.0  # m
CHUNK = 16.0  # m of a road in one polygon
OVERLAP = 0.3  # m by which one reaches into the next, so that no ground shows between them
ASPHALT, MARKING = 0, 1


@dataclass(frozen=True, eq=False)
class Ground:
    """Polygons in the order in which they are painted."""

    corners: Array  # [P, CORNERS, 2] m
    kinds: np.ndarray  # [P] ASPHALT or MARKING
    widths: Array  # [P] m: markings are as narrow as that
    centers: Array  # [P, 2] m
    radii: Array  # [P] m

    @classmethod
    def of(cls, world: World) -> Ground:
        """All that is painted in a world."""
        roads = [leg.middle for leg in world.legs]
        roads += [branch for junction in world.junctions for branch in junction.branches.values()]
        junctions = world.junctions
        asphalt = [strip for road in roads for strip in _strips(road, -ROAD_SIDE, ROAD_SIDE)]
        asphalt += [_area(junction) for junction in junctions]
        half = MARKING_WIDTH / 2
        lines = [
            strip
            for road in roads
            for side in (-LANE_WIDTH, LANE_WIDTH)
            for strip in _strips(road, side - half, side + half)
        ]
        lines += [dash for road in roads for dash in _dashes(road)]
        lines += [edge for junction in junctions for edge in _corner_lines(junction)]
        stops = [_stop_line(junction) for junction in junctions if junction.has_stop_line]
        polygons = np.array(asphalt + lines + stops)
        kinds = np.array([ASPHALT] * len(asphalt) + [MARKING] * (len(lines) + len(stops)))
        widths = np.array(
            [2 * ROAD_SIDE] * len(asphalt) + [MARKING_WIDTH] * len(lines) + [STOP_LINE_WIDTH] * len(stops)
        )
        centers = (polygons.min(axis=1) + polygons.max(axis=1)) / 2
        radii = np.linalg.norm(polygons - centers[:, None], axis=-1).max(axis=1)
        return cls(polygons, kinds, widths, centers, radii)


def _strips(road: Path, right: float, left: float) -> list[Array]:
    """A band along a road, in chunks."""
    count = max(round(road.length / CHUNK), 1)
    strips = []
    for begin in np.arange(count) * road.length / count:
        end = min(begin + road.length / count + OVERLAP, road.length)
        along = np.linspace(begin, end, CORNERS // 2)
        strips.append(np.concatenate([road.points(along, right), road.points(along[::-1], left)]))
    return strips


def _dashes(road: Path) -> list[Array]:
    half = MARKING_WIDTH / 2
    return [
        _padded(
            [*road.points(np.array([begin, begin + DASH]), -half), *road.points(np.array([begin + DASH, begin]), half)]
        )
        for begin in np.arange(DASH, road.length - DASH, DASH_PERIOD)
    ]


def _arms(junction: Junction) -> list[tuple[Array, Array]]:
    """Where each road meets the junction, counterclockwise: its right and left end, as offsets from the middle."""
    directions = sorted([junction.heading + np.pi, *junction.exits.values()], key=lambda angle: angle % (2 * np.pi))
    arms = []
    for angle in directions:
        away, left = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
        arms.append((JUNCTION_REACH * away - left, JUNCTION_REACH * away + left))
    return arms


def _sides(junction: Junction, half_width: float) -> list[tuple[Array, Array]]:
    """The same for roads of that half width, m, in the world."""
    sides = []
    for right, left in _arms(junction):
        middle, across = (right + left) / 2, (left - right) / 2
        sides.append((junction.middle + middle - half_width * across, junction.middle + middle + half_width * across))
    return sides


def _area(junction: Junction) -> Array:
    return _padded([point for side in _sides(junction, ROAD_SIDE) for point in side])


def _corner_lines(junction: Junction) -> list[Array]:
    """Edge lines from each road to the next one around the junction."""
    sides = _sides(junction, LANE_WIDTH)
    return [_line(here[1], after[0], MARKING_WIDTH) for here, after in zip(sides, sides[1:] + sides[:1], strict=True)]


def _stop_line(junction: Junction) -> Array:
    forward = np.array([np.cos(junction.heading), np.sin(junction.heading)])
    left = np.array([-forward[1], forward[0]])
    start = junction.middle - JUNCTION_REACH * forward
    return _line(start - 0.2 * left, start + 2 * IN_LANE * left + 0.2 * left, STOP_LINE_WIDTH)


def _line(begin: Array, end: Array, width: float) -> Array:
    along = (end - begin) / np.linalg.norm(end - begin)
    across = np.array([-along[1], along[0]]) * width / 2
    return _padded([begin - across, end - across, end + across, begin + across])


def _padded(points: Sequence[Array]) -> Array:
    return np.array([*points, *[points[-1]] * (CORNERS - len(points))])
