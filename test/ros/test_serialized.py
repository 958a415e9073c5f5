"""Paths and trajectories as bytes are the messages that they stand for."""

import numpy as np
import pytest
from alpamayo_ros.msg import Trajectory
from geometry_msgs.msg import PointStamped
from nav_msgs.msg import Path
from rclpy.serialization import deserialize_message, serialize_message

from alpamayo_ros.core.trajectory_points import TrajectoryPoints
from alpamayo_ros.ros import convert, serialized

FRAMES = [
    "odom",
    "base_link",
    "",
    "map",
    "a" * 61,
    "straße",
]  # of every length modulo 8, on which CDR's padding depends


def points(seed: int) -> TrajectoryPoints:
    rng = np.random.default_rng(seed)
    position, orientation, motion = rng.normal(size=(64, 3)), rng.normal(size=(64, 4)), rng.normal(size=(3, 64))
    orientation /= np.linalg.norm(orientation, axis=1, keepdims=True)
    return TrajectoryPoints(position * 1e3, orientation, *motion, initial_speed=float(rng.normal()))


def check(made: bytes, message: Path | Trajectory) -> None:
    expected = serialize_message(message)  # what lies in its padding is left over from other things
    assert len(made) == len(expected)
    assert deserialize_message(made, type(message)) == deserialize_message(expected, type(message))


@pytest.mark.parametrize("frame_id", [*FRAMES, *("f" * length for length in range(1, 9))])
def test_the_bytes_are_the_message(frame_id: str) -> None:
    for seed, t0_ns in enumerate((1_700_000_000_950_000_000, 0, 1_999_999_999_999_999_999)):
        of_tick, valid_ns = points(seed), 2_000_000_001
        check(serialized.path_bytes(of_tick, t0_ns, frame_id), convert.path_message(of_tick, t0_ns, frame_id))
        trajectory = convert.trajectory_message(of_tick, t0_ns, frame_id, valid_ns)
        check(serialized.trajectory_bytes(of_tick, t0_ns, frame_id, valid_ns), trajectory)


def test_so_they_are_where_all_numbers_are_alike() -> None:
    still = TrajectoryPoints(np.zeros((64, 3)), np.tile([0.0, 0, 0, 1], (64, 1)), *np.zeros((3, 64)), initial_speed=0.0)
    check(serialized.path_bytes(still, 5, "odom"), convert.path_message(still, 5, "odom"))
    trajectory = convert.trajectory_message(still, 5, "odom", 6)
    check(serialized.trajectory_bytes(still, 5, "odom", 6), trajectory)


@pytest.mark.parametrize("wrong", [1e39, np.inf, np.nan])
def test_a_number_that_no_message_can_hold_is_refused(wrong: float) -> None:
    of_tick = points(0)
    of_tick.speed[7] = wrong
    with pytest.raises(ValueError, match="which no float32 can hold"):
        serialized.trajectory_bytes(of_tick, 5, "odom", 6)


def test_numbers_that_a_message_does_not_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="number 0 of a PointStamped isn't found in its 44"):
        serialized.Template(PointStamped(), np.array([7, 9], np.uint32), (2,))
