"""Messages of a result bag, in rosbags' types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpamayo_ros.core.tick_shapes import LIFETIME_NS, SKIP, Kind, Shape
from alpamayo_ros.core.trajectory_points import TIMES_FROM_START_NS
from alpamayo_ros.core.types import Array
from alpamayo_ros.evaluation.bag import ros_types

SECOND_NS = 1_000_000_000
ADD, DELETE = 0, 2  # visualization_msgs/Marker


def new(kind: str, **fields: Any) -> Any:
    """A message of that type."""
    return ros_types().types[kind](**fields)


def array(values: Any, dtype: str) -> Any:
    """What a field with an array of numbers holds."""
    return np.array(list(values), dtype=dtype)


def time_message(ns: int) -> Any:
    """Nanoseconds as a stamp."""
    return new("builtin_interfaces/msg/Time", sec=ns // SECOND_NS, nanosec=ns % SECOND_NS)


def header_message(ns: int, frame_id: str) -> Any:
    """A header."""
    return new("std_msgs/msg/Header", stamp=time_message(ns), frame_id=frame_id)


def duration_message(ns: int) -> Any:
    """Nanoseconds as a duration."""
    return new("builtin_interfaces/msg/Duration", sec=ns // SECOND_NS, nanosec=ns % SECOND_NS)


def pose_message(position: Array, orientation: Array) -> Any:
    """Position [3] in m and unit quaternion [4] (x, y, z, w)."""
    qx, qy, qz, qw = orientation.tolist()
    return new(
        "geometry_msgs/msg/Pose",
        position=_point(position.tolist()),
        orientation=new("geometry_msgs/msg/Quaternion", x=qx, y=qy, z=qz, w=qw),
    )


def path_message(positions: Array, orientations: Array, t0_ns: int, frame_id: str) -> Any:
    """[n, 3] and [n, 4], n up to 64, 0.1 s apart."""
    poses = [
        new(
            "geometry_msgs/msg/PoseStamped",
            header=header_message(t0_ns + after, frame_id),
            pose=pose_message(position, orientation),
        )
        for after, position, orientation in zip(TIMES_FROM_START_NS, positions, orientations, strict=False)
    ]
    return new("nav_msgs/msg/Path", header=header_message(t0_ns, frame_id), poses=poses)


def tick_markers(shapes: Sequence[Shape], t0_ns: int, frame_id: str, *, locked: bool) -> Any:
    """A MarkerArray of a tick, as the node sends it: it replaces what told of a skip."""
    gone = _marker(Shape(SKIP, Kind.LINE_STRIP, np.empty((0, 3))), t0_ns, frame_id, action=DELETE)
    drawn = [_marker(each, t0_ns, frame_id, lifetime_ns=LIFETIME_NS, locked=locked) for each in shapes]
    return new("visualization_msgs/msg/MarkerArray", markers=[gone, *drawn])


def skip_markers(shape: Shape, now_ns: int, frame_id: str, *, locked: bool) -> Any:
    """A MarkerArray that tells of a skip until the next tick."""
    return new("visualization_msgs/msg/MarkerArray", markers=[_marker(shape, now_ns, frame_id, locked=locked)])


def _marker(
    shape: Shape, ns: int, frame_id: str, *, action: int = ADD, lifetime_ns: int = 0, locked: bool = False
) -> Any:
    text, triangles = shape.kind == Kind.TEXT_VIEW_FACING, shape.kind == Kind.TRIANGLE_LIST
    place = shape.points[0] if text else np.zeros(3)
    scale = (0.0, 0.0, shape.size) if text else (1.0, 1.0, 1.0) if triangles else (shape.size, 0.0, 0.0)
    return new(
        "visualization_msgs/msg/Marker",
        header=header_message(ns, frame_id),
        ns=shape.namespace,
        id=shape.number,
        type=int(shape.kind),
        action=action,
        pose=pose_message(place, np.array([0.0, 0.0, 0.0, 1.0])),
        scale=new("geometry_msgs/msg/Vector3", x=scale[0], y=scale[1], z=scale[2]),
        color=_color(shape.color),
        lifetime=duration_message(lifetime_ns),
        frame_locked=locked,
        points=[] if text else [_point(each) for each in shape.points.tolist()],
        colors=[_color(each) for each in shape.colors.tolist()],
        texture_resource="",
        texture=new(
            "sensor_msgs/msg/CompressedImage", header=header_message(0, ""), format="", data=array((), "uint8")
        ),
        uv_coordinates=[],
        text=shape.text,
        mesh_resource="",
        mesh_file=new("visualization_msgs/msg/MeshFile", filename="", data=array((), "uint8")),
        mesh_use_embedded_materials=False,
    )


def _point(xyz: Sequence[float]) -> Any:
    x, y, z = xyz
    return new("geometry_msgs/msg/Point", x=x, y=y, z=z)


def _color(rgba: Sequence[float]) -> Any:
    red, green, blue, alpha = rgba
    return new("std_msgs/msg/ColorRGBA", r=red, g=green, b=blue, a=alpha)
