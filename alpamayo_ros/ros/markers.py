"""What RViz shows: the chosen path coloured by speed on the ground that it covers, the samples, the reasoning."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Point, Vector3
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.trajectory_points import TrajectoryPoints
from alpamayo_ros.core.types import Array, EgoPose
from alpamayo_ros.ros.convert import duration_message, header_message

CANDIDATE = (0.4, 0.6, 1.0)
CANDIDATE_ALPHA, FAINTEST, FADING = 0.6, 0.08, 2.0  # FADING: m of mean distance over which a sample fades to 1/e
TEXT = ColorRGBA(r=1.0, g=1.0, b=1.0, a=1.0)
SKIPPED = ColorRGBA(r=1.0, g=0.15, b=0.15, a=1.0)
SPEEDS = (0.0, 5.0, 10.0, 20.0, 30.0)  # m/s; the colours between them are interpolated
SPEED_COLORS = np.array([(0.85, 0.1, 0.1), (0.95, 0.6, 0.1), (0.9, 0.9, 0.2), (0.2, 0.85, 0.3), (0.1, 0.7, 0.9)])
RIBBON_ALPHA, RIBBON_HALF_WIDTH = 0.3, 0.9  # m, of the vehicle
LIFETIME_NS = 1_000_000_000  # what a stopped node has drawn vanishes by itself
TEXT_HEIGHT, TEXT_SIZE = 3.0, 0.6  # m above the vehicle, m per line
TEXT_WIDTH = 60  # characters
SKIP = "skip"


def marker_array(
    chosen: TrajectoryPoints,
    candidates: Sequence[TrajectoryPoints],
    reasoning: str,
    pose: EgoPose | None,
    t0_ns: int,
    frame_id: str,
) -> MarkerArray:
    """Markers of one tick. They replace what told of a skip.

    Args:
        chosen: the published trajectory.
        candidates: all samples; the further from the chosen one, the fainter.
        reasoning: the chosen one's.
        pose: of base_link at t0 in `frame_id`; None when that is base_link itself. RViz then moves the markers along
            with the vehicle until the next ones come.
        t0_ns: the tick.
        frame_id: of all points.
    """
    place = np.zeros(3) if pose is None else pose.position
    markers = [_path(chosen), _ribbon(chosen)]
    markers += [_candidate(number, each, chosen) for number, each in enumerate(candidates)]
    if reasoning:
        markers.append(_text("reasoning", reasoning, place, TEXT))
    for marker in markers:
        marker.header = header_message(t0_ns, frame_id)
        marker.lifetime = duration_message(LIFETIME_NS)
        marker.frame_locked = pose is None
    gone = Marker(ns=SKIP, action=Marker.DELETE, header=header_message(t0_ns, frame_id))
    return MarkerArray(markers=[gone, *markers])


def skip_marker(reason: str, place: Array | None, now_ns: int, frame_id: str) -> MarkerArray:
    """Why there is no path, in red where the vehicle was last, until there is one again.

    Args:
        reason: a skip reason.
        place: [3] m in `frame_id`; None when that is the vehicle's own frame.
        now_ns: the node's clock.
        frame_id: of the place.
    """
    marker = _text(SKIP, f"no path: {reason}", np.zeros(3) if place is None else place, SKIPPED)
    marker.header = header_message(now_ns, frame_id)
    marker.frame_locked = place is None
    return MarkerArray(markers=[marker])


def delete_all() -> MarkerArray:
    """Removes everything that was drawn."""
    return MarkerArray(markers=[Marker(action=Marker.DELETEALL)])


def speed_colors(speed: Array, alpha: float) -> list[ColorRGBA]:
    """Speeds [n] in m/s as colours, from red at standstill to blue at 30 m/s; backwards is red too."""
    channels = [np.interp(speed, SPEEDS, SPEED_COLORS[:, channel]) for channel in range(3)]
    return [ColorRGBA(r=r, g=g, b=b, a=alpha) for r, g, b in np.stack(channels, axis=-1).tolist()]


def _path(points: TrajectoryPoints) -> Marker:
    line = Marker(ns="path", type=Marker.LINE_STRIP, scale=Vector3(x=0.25))
    line.points = _points(points.position)
    line.colors = speed_colors(points.speed, 1.0)
    return line


def _ribbon(points: TrajectoryPoints) -> Marker:
    """Two triangles for each step, between the vehicle's sides."""
    side = matrix_from_quaternion(points.orientation)[..., 1] * RIBBON_HALF_WIDTH
    left, right = _points(points.position + side), _points(points.position - side)
    colors = speed_colors(points.speed, RIBBON_ALPHA)
    marker = Marker(ns="ribbon", type=Marker.TRIANGLE_LIST, scale=Vector3(x=1.0, y=1.0, z=1.0))
    for i in range(len(left) - 1):
        marker.points += [left[i], right[i], right[i + 1], left[i], right[i + 1], left[i + 1]]
        marker.colors += [colors[i], colors[i], colors[i + 1], colors[i], colors[i + 1], colors[i + 1]]
    return marker


def _candidate(number: int, points: TrajectoryPoints, chosen: TrajectoryPoints) -> Marker:
    apart = float(np.linalg.norm((points.position - chosen.position)[:, :2], axis=-1).mean())
    r, g, b = CANDIDATE
    alpha = max(FAINTEST, CANDIDATE_ALPHA * float(np.exp(-apart / FADING)))
    line = Marker(ns="candidates", id=number, type=Marker.LINE_STRIP, scale=Vector3(x=0.08))
    line.color = ColorRGBA(r=r, g=g, b=b, a=alpha)
    line.points = _points(points.position)
    return line


def _text(namespace: str, text: str, place: Array, color: ColorRGBA) -> Marker:
    marker = Marker(ns=namespace, type=Marker.TEXT_VIEW_FACING, color=color, text=textwrap.fill(text, TEXT_WIDTH))
    marker.scale.z = TEXT_SIZE
    x, y, z = place.tolist()
    marker.pose.position = Point(x=x, y=y, z=z + TEXT_HEIGHT)
    return marker


def _points(positions: Array) -> list[Point]:
    return [Point(x=x, y=y, z=z) for x, y, z in positions.tolist()]
