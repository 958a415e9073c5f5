"""A road as a chain of straights, clothoids and arcs, and its points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpamayo_ros.core.types import Array

SPACING = 0.1  # m between the points that stand for the curve
STRAIGHT, CLOTHOID, ARC = (25.0, 60.0), (15.0, 30.0), (20.0, 50.0)  # lengths, m: shortest and longest
RADIUS = (35.0, 120.0)  # m of the arcs
LARGEST_HEADING = np.radians(100)  # the road never turns back, and so never crosses itself


@dataclass(frozen=True, eq=False)
class Road:
    """The center line, by distance along it."""

    distance: Array  # [N] m
    xy: Array  # [N, 2] m
    heading: Array  # [N] rad, not wrapped
    curvature: Array  # [N] 1/m, positive to the left

    @classmethod
    def random(cls, length: float, seed: int, start: tuple[float, float] = (0.0, 0.0)) -> Road:
        """A road of at least `length` m that begins at `start` along x."""
        rng = np.random.default_rng(seed)
        knots, bends = [0.0], [0.0]  # curvature is linear between knots: that is a clothoid
        heading = 0.0

        def extend(by: float, curvature: float) -> None:
            knots.append(knots[-1] + by)
            bends.append(curvature)

        extend(STRAIGHT[1], 0.0)
        while knots[-1] < length:
            clothoid, arc, curvature = rng.uniform(*CLOTHOID), rng.uniform(*ARC), 1 / rng.uniform(*RADIUS)
            turn = curvature * (clothoid + arc)  # each of the two clothoids turns half as much as an arc would
            side = rng.choice([-1.0, 1.0])
            if abs(heading + side * turn) > LARGEST_HEADING:
                side = -side
            heading += side * turn
            extend(clothoid, side * curvature)
            extend(arc, side * curvature)
            extend(clothoid, 0.0)
            extend(rng.uniform(*STRAIGHT), 0.0)
        distance: Array = np.arange(0.0, knots[-1], SPACING, dtype=np.float64)
        bend = np.interp(distance, knots, bends)
        angle = _integral(bend)
        middle = (angle[1:] + angle[:-1]) / 2
        steps = SPACING * np.column_stack([np.cos(middle), np.sin(middle)])
        xy = np.array(start) + np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)])
        return cls(distance, xy, angle, bend)

    def points(self, distance: Array | float, left: Array | float = 0.0) -> Array:
        """Points [..., 2] at a distance along the center line and so far to the left of it, m."""
        x, y = (np.interp(distance, self.distance, self.xy[:, axis]) for axis in (0, 1))
        heading = self.heading_at(distance)
        return np.stack([x - left * np.sin(heading), y + left * np.cos(heading)], axis=-1)

    def heading_at(self, distance: Array | float) -> Array:
        """Direction of the center line, rad."""
        return np.asarray(np.interp(distance, self.distance, self.heading))


def _integral(values: Array) -> Array:
    return np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2) * SPACING])
