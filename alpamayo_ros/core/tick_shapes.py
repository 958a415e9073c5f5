"""What a viewer shows of a tick: the chosen path coloured by speed on the ground that it covers, samples, reasoning.

The node sends it as markers, and the evaluator's result bags hold the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.trajectory_points import TrajectoryPoints
from alpamayo_ros.core.types import Array

CANDIDATE = (0.4, 0.6, 1.0)
CANDIDATE_ALPHA, FAINTEST, FADING = 0.7, 0.25, 4.0  # FADING: m of mean distance over which a sample fades to 1/e
TEXT, SKIPPED = (1.0, 1.0, 1.0, 1.0), (1.0, 0.15, 0.15, 1.0)
SPEEDS = (0.0, 5.0, 10.0, 20.0, 30.0)  # m/s; the colours between them are interpolated
SPEED_COLORS = np.array([(0.85, 0.1, 0.1), (0.95, 0.6, 0.1), (0.9, 0.9, 0.2), (0.2, 0.85, 0.3), (0.1, 0.7, 0.9)])
PATH_WIDTH, CANDIDATE_WIDTH = 0.25, 0.12  # m, of lines
RIBBON_ALPHA, RIBBON_HALF_WIDTH = 0.3, 0.9  # m, of the vehicle
LIFETIME_NS = 1_000_000_000  # what a stopped node has drawn vanishes by itself
TEXT_HEIGHT, TEXT_SIZE = 3.0, 0.6  # m above the vehicle, m per line
TEXT_WIDTH = 60  # characters
SKIP = "skip"  # namespace


class Kind(IntEnum):
    """As visualization_msgs/Marker has them."""

    LINE_STRIP = 4
    TEXT_VIEW_FACING = 9
    TRIANGLE_LIST = 11


@dataclass(frozen=True, eq=False)
class Shape:
    """One thing to draw."""

    namespace: str
    kind: Kind
    points: Array  # [n, 3] m; of a text the one place where it stands
    color: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # red, green, blue, alpha, where all is of one
    colors: Array = field(default_factory=lambda: np.empty((0, 4)))  # [n, 4] of each point, else
    size: float = 1.0  # m: a line's width, a text's height
    number: int = 0  # within the namespace
    text: str = ""


def tick_shapes(
    chosen: TrajectoryPoints, candidates: Sequence[TrajectoryPoints], reasoning: str, place: Array
) -> list[Shape]:
    """Of a tick that gave a path.

    Args:
        chosen: the published trajectory.
        candidates: all samples; the further from the chosen one, the fainter.
        reasoning: the chosen one's.
        place: [3] m of the vehicle at t0, in the frame of the points.
    """
    shapes = [_path(chosen), _ribbon(chosen)]
    shapes += [_candidate(number, each, chosen) for number, each in enumerate(candidates)]
    return [*shapes, _text("reasoning", reasoning, place, TEXT)] if reasoning else shapes


def skip_shape(reason: str, place: Array) -> Shape:
    """Why there is no path, in red above the vehicle; place: [3] m."""
    return _text(SKIP, f"no path: {reason}", place, SKIPPED)


def speed_colors(speed: Array, alpha: float) -> Array:
    """Speeds [n] in m/s as colours [n, 4], from red at standstill to blue at 30 m/s; backwards is red too."""
    channels = [np.interp(speed, SPEEDS, SPEED_COLORS[:, channel]) for channel in range(3)]
    return np.stack([*channels, np.full(len(speed), alpha)], axis=-1)


def _path(points: TrajectoryPoints) -> Shape:
    return Shape("path", Kind.LINE_STRIP, points.position, colors=speed_colors(points.speed, 1.0), size=PATH_WIDTH)


def _ribbon(points: TrajectoryPoints) -> Shape:
    """Two triangles for each step, between the vehicle's sides."""
    side = matrix_from_quaternion(points.orientation)[..., 1] * RIBBON_HALF_WIDTH
    left, right = points.position + side, points.position - side
    colors = speed_colors(points.speed, RIBBON_ALPHA)
    here, there = slice(None, -1), slice(1, None)
    corners = (left[here], right[here], right[there], left[here], right[there], left[there])
    of_corners = (colors[here], colors[here], colors[there], colors[here], colors[there], colors[there])
    return Shape(
        "ribbon",
        Kind.TRIANGLE_LIST,
        np.stack(corners, axis=1).reshape(-1, 3),
        colors=np.stack(of_corners, axis=1).reshape(-1, 4),
    )


def _candidate(number: int, points: TrajectoryPoints, chosen: TrajectoryPoints) -> Shape:
    apart = float(np.linalg.norm((points.position - chosen.position)[:, :2], axis=-1).mean())
    color = (*CANDIDATE, max(FAINTEST, CANDIDATE_ALPHA * float(np.exp(-apart / FADING))))
    return Shape("candidates", Kind.LINE_STRIP, points.position, color=color, size=CANDIDATE_WIDTH, number=number)


def _text(namespace: str, text: str, place: Array, color: tuple[float, float, float, float]) -> Shape:
    above = np.array([[0.0, 0.0, TEXT_HEIGHT]]) + place
    wrapped = textwrap.fill(text, TEXT_WIDTH)
    return Shape(namespace, Kind.TEXT_VIEW_FACING, above, color=color, size=TEXT_SIZE, text=wrapped)
