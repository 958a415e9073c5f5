"""The trajectory as Autoware's controllers take it, where Autoware's messages are installed."""

from __future__ import annotations

from typing import Any

from alpamayo_ros.core.settings import OutputSettings
from alpamayo_ros.core.trajectory_points import TrajectoryPoints
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.ros.convert import duration_message, header_message, pose_message

try:
    from autoware_planning_msgs.msg import Trajectory, TrajectoryPoint
except ImportError:  # a part of Autoware, not of ROS 2
    Trajectory = TrajectoryPoint = None


def check_autoware(output: OutputSettings) -> None:
    """Raises ConfigurationError when `output.autoware_trajectory` is set and Autoware's messages are not installed."""
    if output.autoware_trajectory and Trajectory is None:
        raise ConfigurationError(
            "output.autoware_trajectory is True: that needs autoware_planning_msgs, which is not installed; install "
            "ros-$ROS_DISTRO-autoware-planning-msgs or source an Autoware workspace"
        )


def autoware_message(points: TrajectoryPoints | None, stamp_ns: int, frame_id: str) -> Any:
    """The points as autoware_planning_msgs/Trajectory; without points where there is none to follow.

    The model gives no lateral velocity, and wheel angles depend on the vehicle: these fields stay 0. The heading rate
    is speed times curvature.
    """
    message = Trajectory(header=header_message(stamp_ns, frame_id))
    if points is None:
        return message
    message.points = [
        TrajectoryPoint(
            time_from_start=duration_message(after),
            pose=pose_message(position, orientation),
            longitudinal_velocity_mps=speed,
            acceleration_mps2=acceleration,
            heading_rate_rps=speed * curvature,
        )
        for after, position, orientation, speed, acceleration, curvature in points.rows()
    ]
    return message
