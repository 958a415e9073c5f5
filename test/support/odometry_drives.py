"""Odometry of made-up drives, with what sources send as the twist, and the jumps that are found in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from alpamayo_ros.core.jump import JumpFinder
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.types import EgoPose

Poses = list[EgoPose]


def at(seconds: float, x: float, y: float, heading: float, speed: float) -> EgoPose:
    orientation = np.array([0.0, 0.0, math.sin(heading / 2), math.cos(heading / 2)])
    return EgoPose(round(seconds * 1e9), np.array([x, y, 0.0]), orientation, np.array([speed, 0.0, 0.0]), np.zeros(3))


def driven(
    speed: float,
    hz: float,
    seconds: float = 4.0,
    acceleration: Callable[[float], float] = lambda _: 0.0,
    turn: Callable[[float], float] = lambda _: 0.0,
    heading: float = 0.7,
) -> Poses:
    """From 1 s on; speed in m/s, acceleration in m/s^2 and turn in rad/s by the seconds driven."""
    x = y = 0.0
    found, fine = [], 0.001
    for k in range(round(seconds / fine)):
        t = k * fine
        if k % round(1 / hz / fine) == 0:
            found.append(at(1 + t, x, y, heading, speed))
        x, y = x + speed * fine * math.cos(heading), y + speed * fine * math.sin(heading)
        speed, heading = max(speed + acceleration(t) * fine, 0.0), heading + turn(t) * fine
    return found


def without_twist(poses: Poses) -> Poses:
    return [replace(pose, linear_velocity=None, angular_velocity=None) for pose in poses]


def with_zeros(poses: Poses) -> Poses:
    return [replace(pose, linear_velocity=np.zeros(3), angular_velocity=np.zeros(3)) for pose in poses]


def in_odom(poses: Poses) -> Poses:
    """The twist in the odometry's frame, as many send it."""
    return [
        pose
        if pose.linear_velocity is None
        else replace(pose, linear_velocity=matrix_from_quaternion(pose.orientation) @ pose.linear_velocity)
        for pose in poses
    ]


def as_it_is(poses: Poses) -> Poses:
    return poses


def jumps(poses: Sequence[EgoPose], max_jump: float = 1.0) -> list[int]:
    """The numbers of the poses that are the first after a jump."""
    finder = JumpFinder(max_jump)
    return [number for number, ends in enumerate(pairwise(poses), 1) if finder.find(*ends) is not None]


def moved(poses: Poses, first: int, end: int, metres: float, angle: float) -> Poses:
    """Poses `first` .. `end` are so far off, in a direction by its angle to the vehicle's heading."""
    found = list(poses)
    for number in range(first, min(end, len(poses))):
        pose = poses[number]
        off = matrix_from_quaternion(pose.orientation) @ [metres * math.cos(angle), metres * math.sin(angle), 0.0]
        found[number] = replace(pose, position=pose.position + off)
    return found
