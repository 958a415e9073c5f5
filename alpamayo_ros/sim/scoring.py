"""How well a closed loop went: the way, lane departures, collisions, offsets. Pure functions of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import Array
from alpamayo_ros.sim.car_plans import CAR_LENGTH, CAR_WIDTH
from alpamayo_ros.sim.ground import MARKING_WIDTH
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.path import SPACING
from alpamayo_ros.sim.vehicle import FRONT, REAR_OVERHANG, WIDTH, VehicleState
from alpamayo_ros.sim.world import LANE_WIDTH, World

Mask = NDArray[np.bool_]

LANE_HALF = LANE_WIDTH / 2 + MARKING_WIDTH / 2  # m: a body that covers its lane's line has not left the lane
JUNCTION_HALF = LANE_HALF + 1.5  # m: no lines lead through a junction
JUNCTION_MARGIN = 4.0  # m before and after it, where the body is partly within
WINDOW = 25.0  # m of the route, to both sides, among which a corner's nearest point is looked for


@dataclass(frozen=True, eq=False)
class Trace:
    """A drive, sampled at 10 Hz."""

    time_s: Array  # [N]
    poses: Array  # [N, 3] x, y (m) and yaw (rad) of the rear axle in the world
    speeds: Array  # [N] m/s
    along: Array  # [N] m along the route
    left: Array  # [N] m, the rear axle's offset from the lane's middle
    hits: Mask  # [N] the body overlaps another car's


class TraceRecorder:
    """Collects a trace."""

    def __init__(self) -> None:
        self._rows = list[tuple[float, ...]]()
        self._hits = list[bool]()

    def add(self, journey: Journey) -> None:
        """Take down this moment."""
        vehicle = journey.vehicle
        self._rows.append((journey.time_s, *vehicle[:3], vehicle.speed, journey.along, journey.left))
        self._hits.append(hits_a_car(journey))

    def trace(self) -> Trace:
        """All of them."""
        rows = np.array(self._rows).reshape(-1, 7)
        return Trace(rows[:, 0], rows[:, 1:4], rows[:, 4], rows[:, 5], rows[:, 6], np.array(self._hits, bool))


@dataclass(frozen=True)
class ClosedLoopScore:
    """One route."""

    seed: int
    length_m: float  # of the route
    distance_m: float  # driven along it
    seconds: float
    arrived: bool
    lane_departures: int  # times that the body left its lane
    first_departure_m: float | None  # along the route
    collisions: int  # times that it hit another car
    mean_offset_m: float  # of the rear axle from the lane's middle, absolute
    max_offset_m: float

    @property
    def passed(self) -> bool:
        """Whether it arrived without leaving its lane or hitting a car."""
        return self.arrived and not self.lane_departures and not self.collisions


def score(world: World, trace: Trace) -> ClosedLoopScore:
    """The score of a trace in its world."""
    out = leaves_lane(world, trace)
    first = float(trace.along[np.argmax(out)]) if out.any() else None
    offset = np.abs(trace.left)
    return ClosedLoopScore(
        seed=world.seed,
        length_m=world.length,
        distance_m=float(min(trace.along[-1], world.length) - trace.along[0]),
        seconds=float(trace.time_s[-1] - trace.time_s[0]),
        arrived=bool(trace.along[-1] >= world.length),
        lane_departures=_begun(out),
        first_departure_m=first,
        collisions=_begun(trace.hits),
        mean_offset_m=float(offset.mean()),
        max_offset_m=float(offset.max()),
    )


def leaves_lane(world: World, trace: Trace) -> Mask:
    """[N] whether a corner of the body is outside of the lane, or too far from the way through a junction."""
    corners = body_corners(trace.poses)
    reach = round(WINDOW / SPACING)
    route, heading = world.route.xy, world.route.heading
    out = np.zeros(len(corners), bool)
    for number, (four, along) in enumerate(zip(corners, trace.along, strict=True)):
        middle = min(max(round(float(along) / SPACING), 0), len(route) - 1)
        begin = max(middle - reach, 0)
        near = slice(begin, middle + reach)
        distance = np.linalg.norm(four[:, None] - route[near], axis=-1)
        nearest = distance.argmin(axis=1) + begin
        offset = four - route[nearest]
        left = np.cos(heading[nearest]) * offset[:, 1] - np.sin(heading[nearest]) * offset[:, 0]
        out[number] = bool((np.abs(left) > allowed_offset(world, nearest * SPACING)).any())
        out[number] |= bool((distance.min(axis=1) > JUNCTION_HALF).any())
    return out


def allowed_offset(world: World, along: Array) -> Array:
    """m to each side of the lane's middle, at distances [...] along the route."""
    allowed = np.full(np.shape(along), LANE_HALF)
    for junction in world.junctions:
        within = (along > junction.begin - JUNCTION_MARGIN) & (along < junction.end + JUNCTION_MARGIN)
        allowed = np.where(within, JUNCTION_HALF, allowed)
    return allowed


def body_corners(poses: Array) -> Array:
    """[N, 4, 2] m of vehicles whose rear axles are at poses [N, 3]: rear right, front right, front left, rear left."""
    return _corners(poses, -REAR_OVERHANG, FRONT, WIDTH / 2)


def hits_a_car(journey: Journey) -> bool:
    """Whether the vehicle's body overlaps another car's now."""
    cars = journey.traffic.cars
    if not cars:
        return False
    poses = np.array([[*car.plan.path.points(car.along), car.plan.path.heading_at(car.along)] for car in cars])
    near = np.linalg.norm(poses[:, :2] - journey.vehicle[:2], axis=1) < 10.0
    boxes = _corners(poses[near], -CAR_LENGTH / 2, CAR_LENGTH / 2, CAR_WIDTH / 2)
    return any(overlap(_body(journey.vehicle), box) for box in boxes)


def overlap(first: Array, second: Array) -> bool:
    """Whether two convex polygons [N, 2] and [M, 2] overlap: no edge of either separates them."""
    for polygon in (first, second):
        edges = np.roll(polygon, -1, axis=0) - polygon
        normals = np.column_stack([-edges[:, 1], edges[:, 0]])
        a, b = first @ normals.T, second @ normals.T
        if np.any((a.max(axis=0) < b.min(axis=0)) | (b.max(axis=0) < a.min(axis=0))):
            return False
    return True


def score_table(scores: Sequence[ClosedLoopScore]) -> str:
    """A line per route, and what they come to."""
    lines = ["seed  driven        time  departures  collisions  offset mean / max"]
    for each in scores:
        end = "" if each.passed else "  failed"
        lines.append(
            f"{each.seed:4d}  {each.distance_m:4.0f} of {each.length_m:4.0f} m {each.seconds:5.0f} s "
            f"{each.lane_departures:8d} {each.collisions:11d}      "
            f"{each.mean_offset_m:.2f} / {each.max_offset_m:.2f} m{end}"
        )
    passed = sum(each.passed for each in scores)
    return "\n".join([*lines, f"{passed} of {len(scores)} routes driven to their end in the lane, without a collision"])


def _body(vehicle: VehicleState) -> Array:
    return body_corners(np.array([vehicle[:3]]))[0]


def _corners(poses: Array, rear: float, front: float, side: float) -> Array:
    box = np.array([[rear, -side], [front, -side], [front, side], [rear, side]])
    c, s = np.cos(poses[:, 2])[:, None], np.sin(poses[:, 2])[:, None]
    x, y = c * box[:, 0] - s * box[:, 1], s * box[:, 0] + c * box[:, 1]
    return poses[:, None, :2] + np.stack([x, y], axis=-1)


def _begun(mask: Mask) -> int:
    return int((mask & ~np.concatenate([[False], mask[:-1]])).sum())
