"""A curve on the ground by distance along it: a clothoid spline, or what is made of such."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import Array

SPACING = 0.25  # m between the points that stand for the curve


@dataclass(frozen=True, eq=False)
class Path:
    """Points every SPACING, with direction and curvature."""

    xy: Array  # [N, 2] m
    heading: Array  # [N] rad, not wrapped
    curvature: Array  # [N] 1/m, positive to the left

    @classmethod
    def clothoids(cls, start: Array, heading: float, knots: Sequence[float], bends: Sequence[float]) -> Path:
        """A curve from `start` [2] m along `heading` rad; its curvature is linear between the knots.

        Args:
            start: where it begins.
            heading: its direction there.
            knots: [K] m along it, from 0 on.
            bends: [K] 1/m, the curvature at each knot.
        """
        distance = np.arange(round(knots[-1] / SPACING) + 1) * SPACING
        bend = np.interp(distance, knots, bends)
        angle = heading + _integral(bend)
        middle = (angle[1:] + angle[:-1]) / 2
        steps = SPACING * np.column_stack([np.cos(middle), np.sin(middle)])
        xy: Array = np.asarray(start, float) + np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
        return cls(xy, angle, bend)

    @classmethod
    def joined(cls, pieces: Sequence[Path]) -> Path:
        """Pieces that each begin where the one before ends, as one curve."""
        xy = np.concatenate([piece.xy[:-1] for piece in pieces[:-1]] + [pieces[-1].xy])
        heading = np.concatenate([piece.heading[:-1] for piece in pieces[:-1]] + [pieces[-1].heading])
        curvature = np.concatenate([piece.curvature[:-1] for piece in pieces[:-1]] + [pieces[-1].curvature])
        along = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(xy, axis=0), axis=1))])
        distance = np.arange(0.0, along[-1], SPACING)
        columns = [np.interp(distance, along, values) for values in (xy[:, 0], xy[:, 1], heading, curvature)]
        return cls(np.column_stack(columns[:2]), columns[2], columns[3])

    @property
    def length(self) -> float:
        """m."""
        return (len(self.heading) - 1) * SPACING

    @property
    def distance(self) -> Array:
        """[N] m of each point."""
        return np.arange(len(self.heading), dtype=np.float64) * SPACING

    def beside(self, left: float) -> Path:
        """The parallel curve so far to the left, m. Its points are opposite this one's, not every SPACING."""
        normal = np.column_stack([-np.sin(self.heading), np.cos(self.heading)])
        return Path(self.xy + left * normal, self.heading, self.curvature / (1 - left * self.curvature))

    def backwards(self) -> Path:
        """The same curve from its end."""
        return Path(self.xy[::-1], self.heading[::-1] + np.pi, -self.curvature[::-1])

    def points(self, distance: Array | float, left: Array | float = 0.0) -> Array:
        """Points [..., 2] at a distance along the curve and so far to the left of it, m."""
        x, y = (np.interp(distance, self.distance, self.xy[:, axis]) for axis in (0, 1))
        heading = self.heading_at(distance)
        return np.stack([x - left * np.sin(heading), y + left * np.cos(heading)], axis=-1)

    def heading_at(self, distance: Array | float) -> Array:
        """Its direction, rad."""
        return np.asarray(np.interp(distance, self.distance, self.heading))


def symmetric_turn(start: Array, heading: float, end: Array, angle: float) -> Path:
    """A turn with steadily growing, constant, and steadily falling curvature, that ends exactly at `end`.

    A symmetric turn by `angle` leads in the direction of its half, whatever its size; so `end` has to lie there,
    and the size follows from the distance. An angle of 0 is a straight line.

    Args:
        start: [2] m.
        heading: rad, at the start.
        end: [2] m.
        angle: rad, of the whole turn, positive to the left.
    """
    reach = float(np.linalg.norm(end - start))
    shape = np.array([0.0, 0.3, 0.7, 1.0])  # of the length: where the curvature's knots are
    peak = angle / 0.7  # times the length: the trapezoid's area is the angle
    fine = np.linspace(0.0, 1.0, 401)
    turned = np.concatenate([[0.0], np.cumsum(_middles(np.interp(fine, shape, [0, peak, peak, 0]))) / 400])
    chord = abs(np.exp(1j * _middles(turned)).mean())
    length = round(reach / chord / SPACING) * SPACING
    path = Path.clothoids(start, heading, list(shape * length), [0.0, peak / length, peak / length, 0.0])
    # the length was rounded to whole points: a stretch by less than 1 % makes it end where it has to
    return Path(start + (path.xy - start) * (reach / np.linalg.norm(path.xy[-1] - start)), path.heading, path.curvature)


def _middles(values: Array) -> Array:
    return (values[1:] + values[:-1]) / 2


def _integral(values: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum(_middles(values)) * SPACING])


def fastest_speeds(path: Path, fastest: float, sideways: float, braking: float) -> Array:
    """The highest speeds [N] m/s on a path that keep to limits, with time to brake before bends.

    Args:
        path: what is driven on.
        fastest: m/s.
        sideways: m/s^2 in bends.
        braking: m/s^2 before them.
    """
    speeds = np.minimum(np.sqrt(sideways / np.maximum(np.abs(path.curvature), 1e-6)), fastest)
    for i in range(len(speeds) - 2, -1, -1):
        speeds[i] = min(speeds[i], np.sqrt(speeds[i + 1] ** 2 + 2 * braking * SPACING))
    return speeds
