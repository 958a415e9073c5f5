"""What RViz shows of a tick, or of a tick that could not be, as markers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from geometry_msgs.msg import Point, Vector3
from std_msgs.msg import ColorRGBA
from visualization_msgs.msg import Marker, MarkerArray

from alpamayo_ros.core.tick_shapes import LIFETIME_NS, SKIP, Kind, Shape, skip_shape, tick_shapes
from alpamayo_ros.core.trajectory_points import TrajectoryPoints
from alpamayo_ros.core.types import Array, EgoPose
from alpamayo_ros.ros.convert import duration_message, header_message


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
    markers = [_marker(shape) for shape in tick_shapes(chosen, candidates, reasoning, place)]
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
    marker = _marker(skip_shape(reason, np.zeros(3) if place is None else place))
    marker.header = header_message(now_ns, frame_id)
    marker.frame_locked = place is None
    return MarkerArray(markers=[marker])


def delete_all() -> MarkerArray:
    """Removes everything that was drawn."""
    return MarkerArray(markers=[Marker(action=Marker.DELETEALL)])


def _marker(shape: Shape) -> Marker:
    marker = Marker(
        ns=shape.namespace, id=shape.number, type=int(shape.kind), text=shape.text, color=_color(shape.color)
    )
    points = [Point(x=x, y=y, z=z) for x, y, z in shape.points.tolist()]
    if shape.kind == Kind.TEXT_VIEW_FACING:
        marker.pose.position = points[0]
        marker.scale.z = shape.size
        return marker
    marker.points = points
    marker.colors = [_color(each) for each in shape.colors.tolist()]
    one = shape.kind == Kind.TRIANGLE_LIST  # a factor for its points
    marker.scale = Vector3(x=1.0, y=1.0, z=1.0) if one else Vector3(x=shape.size)
    return marker


def _color(rgba: Sequence[float]) -> ColorRGBA:
    red, green, blue, alpha = rgba
    return ColorRGBA(r=red, g=green, b=blue, a=alpha)
