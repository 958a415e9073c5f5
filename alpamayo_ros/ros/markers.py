"""What RViz shows: the chosen path, the fan of candidates, the reasoning as text."""

from __future__ import annotations

from collections.abc import Sequence

from geometry_msgs.msg import Point, Vector3
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from alpamayo_ros.core.trajectory_points import TrajectoryPoints
from alpamayo_ros.core.types import EgoPose
from alpamayo_ros.ros.convert import duration_message, header_message

CHOSEN = ColorRGBA(r=0.1, g=0.9, b=0.3, a=1.0)
CANDIDATE = ColorRGBA(r=0.4, g=0.6, b=1.0, a=0.35)
TEXT = ColorRGBA(r=1.0, g=1.0, b=1.0, a=1.0)
LIFETIME_NS = 1_000_000_000  # what a stopped node has drawn vanishes by itself
TEXT_HEIGHT = 3.0  # m above the vehicle


def marker_array(
    chosen: TrajectoryPoints,
    candidates: Sequence[TrajectoryPoints],
    reasoning: str,
    pose: EgoPose | None,
    t0_ns: int,
    frame_id: str,
) -> MarkerArray:
    """Markers of one tick.

    Args:
        chosen: the published trajectory.
        candidates: all samples.
        reasoning: the chosen one's.
        pose: of base_link at t0 in `frame_id`; None when that is base_link itself. RViz then moves the markers along
            with the vehicle until the next ones come.
        t0_ns: the tick.
        frame_id: of all points.
    """
    locked = pose is None
    x, y, z = (0.0, 0.0, 0.0) if pose is None else pose.position.tolist()
    markers = [_line("path", 0, chosen, CHOSEN, 0.3)]
    markers += [_line("candidates", i, each, CANDIDATE, 0.08) for i, each in enumerate(candidates)]
    if reasoning:
        text = Marker(ns="reasoning", type=Marker.TEXT_VIEW_FACING, color=TEXT, text=reasoning)
        text.scale.z = 0.6
        text.pose.position = Point(x=x, y=y, z=z + TEXT_HEIGHT)
        markers.append(text)
    for marker in markers:
        marker.header = header_message(t0_ns, frame_id)
        marker.lifetime = duration_message(LIFETIME_NS)
        marker.frame_locked = locked
    return MarkerArray(markers=markers)


def delete_all() -> MarkerArray:
    """Removes everything that was drawn."""
    return MarkerArray(markers=[Marker(action=Marker.DELETEALL)])


def _line(namespace: str, identifier: int, points: TrajectoryPoints, color: ColorRGBA, width: float) -> Marker:
    line = Marker(ns=namespace, id=identifier, type=Marker.LINE_STRIP, color=color, scale=Vector3(x=width))
    line.points = [Point(x=x, y=y, z=z) for x, y, z in points.position.tolist()]
    return line
