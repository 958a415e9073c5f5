"""Predictions to messages. Stamps are exact: integer nanoseconds throughout."""

from __future__ import annotations

from collections.abc import Sequence

from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import Point, Pose, PoseStamped, Quaternion
from nav_msgs.msg import Path
from std_msgs.msg import Header

from alpamayo_ros.core.incoming import SECOND_NS
from alpamayo_ros.core.trajectory_points import TIMES_FROM_START_NS, TrajectoryPoints
from alpamayo_ros.core.types import Array
from alpamayo_ros.msg import Reasoning, Trajectory, TrajectoryCandidates, TrajectoryPoint


def time_message(ns: int) -> Time:
    """Nanoseconds as a stamp."""
    sec, nanosec = divmod(ns, SECOND_NS)
    return Time(sec=sec, nanosec=nanosec)


def duration_message(ns: int) -> Duration:
    """Nanoseconds as a duration."""
    sec, nanosec = divmod(ns, SECOND_NS)
    return Duration(sec=sec, nanosec=nanosec)


def header_message(ns: int, frame_id: str) -> Header:
    """A header."""
    return Header(stamp=time_message(ns), frame_id=frame_id)


def pose_message(position: Array, orientation: Array) -> Pose:
    """Position [3] in m and unit quaternion [4] (x, y, z, w) as a pose."""
    x, y, z = position.tolist()
    qx, qy, qz, qw = orientation.tolist()
    return Pose(position=Point(x=x, y=y, z=z), orientation=Quaternion(x=qx, y=qy, z=qz, w=qw))


def path_message(points: TrajectoryPoints, t0_ns: int, frame_id: str) -> Path:
    """The points as a path: the header carries t0, pose i its own time t0 + (i+1) * 0.1 s."""
    return timed_path(points.position, points.orientation, t0_ns, frame_id)


def timed_path(positions: Array, orientations: Array, t0_ns: int, frame_id: str) -> Path:
    """A path [n, 3] with its orientations [n, 4], n up to 64, pose i at t0 + (i+1) * 0.1 s."""
    poses = [
        PoseStamped(header=header_message(t0_ns + after, frame_id), pose=pose_message(position, orientation))
        for after, position, orientation in zip(TIMES_FROM_START_NS, positions, orientations, strict=False)
    ]
    return Path(header=header_message(t0_ns, frame_id), poses=poses)


def trajectory_message(points: TrajectoryPoints, t0_ns: int, frame_id: str, valid_ns: int) -> Trajectory:
    """The points as a trajectory that may be followed until t0 + valid_ns."""
    return Trajectory(
        header=header_message(t0_ns, frame_id),
        valid_until=time_message(t0_ns + valid_ns),
        initial_speed=points.initial_speed,
        points=[
            TrajectoryPoint(
                time_from_start=duration_message(after),
                pose=pose_message(position, orientation),
                speed=speed,
                acceleration=acceleration,
                curvature=curvature,
            )
            for after, position, orientation, speed, acceleration, curvature in points.rows()
        ],
    )


def empty_trajectory_message(ns: int, frame_id: str, reason: str) -> Trajectory:
    """No trajectory, and why: there is nothing to follow from now (`ns`) on."""
    return Trajectory(header=header_message(ns, frame_id), valid_until=time_message(ns), reason=reason)


def candidates_message(
    candidates: Sequence[Trajectory], reasoning: Sequence[str], chosen: int, t0_ns: int, frame_id: str
) -> TrajectoryCandidates:
    """All samples of a tick."""
    return TrajectoryCandidates(
        header=header_message(t0_ns, frame_id),
        candidates=list(candidates),
        reasoning=list(reasoning),
        chosen=chosen,
    )


def reasoning_message(text: str, token_ids: Sequence[int], finish_reason: str, t0_ns: int, frame_id: str) -> Reasoning:
    """The reasoning of one sample."""
    return Reasoning(
        header=header_message(t0_ns, frame_id), text=text, token_ids=list(token_ids), finish_reason=finish_reason
    )
