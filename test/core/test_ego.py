"""The ego history: exact where the law allows, bounded elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import builder, frames, ns, observations, odometry, run

from alpamayo_ros.core.rotation import matrix_from_quaternion, matrix_from_rpy, quaternion_from_matrix, slerp
from alpamayo_ros.core.types import Array, EgoPose, Observation

AGES = np.arange(-1.5, 0.01, 0.1)


def quaternion(axis: Array, angle: float) -> Array:
    return np.append(np.sin(angle / 2) * axis, np.cos(angle / 2))


def last_tick(pose, hz: float, begin: float = 0.0) -> Observation:
    messages = frames("wide", 10, begin=0.0, end=2.4) + odometry(hz=hz, begin=begin, end=2.5, pose=pose)
    return observations(run(builder("wide"), messages))[-1]


numbers = st.floats(-1, 1)


@settings(deadline=None, max_examples=40)
@given(
    velocity=st.tuples(numbers, numbers, numbers),
    axis=st.tuples(numbers, numbers, numbers).filter(lambda v: np.linalg.norm(v) > 0.1),
    rate=st.floats(-1.0, 1.0),
    start=st.tuples(numbers, numbers, numbers),
    phase=st.floats(0, 0.02),
    hz=st.sampled_from([10, 33, 50, 200]),
)
def test_exact_for_constant_world_velocity_and_constant_rate_of_turn(
    velocity: tuple[float, ...], axis: tuple[float, ...], rate: float, start: tuple[float, ...], phase: float, hz: float
) -> None:
    v, u, p0 = 30 * np.array(velocity), np.array(axis) / np.linalg.norm(axis), 1000 * np.array(start)

    def truth(t: float) -> tuple[Array, Array]:
        return p0 + v * t, matrix_from_quaternion(quaternion(u, rate * t))

    def pose(stamp_ns: int) -> EgoPose:
        t = (stamp_ns - ns(0)) * 1e-9
        return EgoPose(stamp_ns, p0 + v * t, quaternion(u, rate * t) * np.sign(np.sin(40 * t) or 1.0))  # either sign

    seen = last_tick(pose, hz, begin=phase)
    t0 = (seen.t0_ns - ns(0)) * 1e-9
    position, rotation = truth(t0)
    for k, age in enumerate(AGES):
        then_position, then_rotation = truth(t0 + age)
        np.testing.assert_allclose(seen.history_xyz[k], rotation.T @ (then_position - position), atol=1e-6)
        np.testing.assert_allclose(seen.history_rotation[k], rotation.T @ then_rotation, atol=1e-7)
    assert not seen.history_xyz[-1].any()
    np.testing.assert_array_equal(seen.history_rotation[-1], np.eye(3))


@settings(deadline=None, max_examples=30)
@given(speed=st.floats(0.5, 30), radius=st.floats(8, 200), hz=st.sampled_from([10, 20, 50]), phase=st.floats(0, 0.02))
def test_on_a_circle_positions_are_off_by_at_most_the_sagitta_of_a_gap(
    speed: float, radius: float, hz: float, phase: float
) -> None:
    rate = min(speed / radius, 1.0)

    def pose(stamp_ns: int) -> EgoPose:
        a = rate * (stamp_ns - ns(0)) * 1e-9
        position = radius * np.array([np.sin(a), 1 - np.cos(a), 0])
        return EgoPose(stamp_ns, position, quaternion(np.array([0, 0, 1.0]), a))

    seen = last_tick(pose, hz, begin=phase)
    bound = 2 * radius * rate**2 / hz**2 / 8  # at both ends: the centripetal acceleration times gap^2 / 8
    angle = rate * AGES
    expected = radius * np.stack([np.sin(angle), 1 - np.cos(angle), 0 * angle], axis=-1)
    assert np.linalg.norm(seen.history_xyz - expected, axis=-1).max() <= bound + 1e-6
    yaw = np.arctan2(seen.history_rotation[:, 1, 0], seen.history_rotation[:, 0, 0])
    np.testing.assert_allclose(yaw, angle, atol=1e-7)


def test_forward_is_x_and_left_is_y() -> None:
    def pose(stamp_ns: int) -> EgoPose:  # north at 10 m/s
        t = (stamp_ns - ns(0)) * 1e-9
        return EgoPose(stamp_ns, np.array([3.0, 10 * t, 0]), quaternion(np.array([0, 0, 1.0]), np.pi / 2))

    seen = last_tick(pose, 50)
    np.testing.assert_allclose(seen.history_xyz[:, 0], 10 * AGES, atol=1e-9)
    np.testing.assert_allclose(seen.history_xyz[:, 1:], 0, atol=1e-9)


def test_odometry_between_the_frames_gives_the_pose_at_t0() -> None:
    def pose(stamp_ns: int) -> EgoPose:
        return EgoPose(stamp_ns, np.array([20 * (stamp_ns - ns(0)) * 1e-9, 0, 0]), np.array([0, 0, 0, 1.0]))

    seen = last_tick(pose, 50, begin=0.013)
    assert seen.pose.stamp_ns == seen.t0_ns
    assert seen.pose.position[0] == pytest.approx(20 * (seen.t0_ns - ns(0)) * 1e-9, abs=1e-9)


@settings(deadline=None)
@given(angle=st.floats(0, 3.1), fraction=st.floats(0, 1), axis=st.tuples(numbers, numbers, numbers))
def test_slerp_turns_by_that_part_of_the_angle(angle: float, fraction: float, axis: tuple[float, ...]) -> None:
    length = np.linalg.norm(axis)
    u = np.array(axis) / length if length > 0.1 else np.array([0, 0, 1.0])
    q0 = quaternion_from_matrix(matrix_from_rpy(0.3, -0.2, 1.0))
    turn = quaternion(u, angle)
    q1 = quaternion_from_matrix(matrix_from_quaternion(q0) @ matrix_from_quaternion(turn))
    found = slerp(q0[None], q1[None], np.array([[fraction]]))[0]
    expected = matrix_from_quaternion(q0) @ matrix_from_quaternion(quaternion(u, fraction * angle))
    np.testing.assert_allclose(matrix_from_quaternion(found), expected, atol=1e-7)
