import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alpamayo_ros.core.rotation import matrix_from_quaternion, matrix_from_rpy, quaternion_from_matrix

components = st.floats(-1, 1, allow_subnormal=False)
quaternions = st.tuples(components, components, components, components).filter(lambda q: np.linalg.norm(q) > 0.1)


@given(quaternions)
def test_a_rotation_survives_the_way_through_a_matrix(quaternion):
    unit = np.array(quaternion) / np.linalg.norm(quaternion)
    back = quaternion_from_matrix(matrix_from_quaternion(np.array(quaternion)))
    assert np.linalg.norm(back) == pytest.approx(1, abs=1e-12)
    assert back[3] >= 0
    assert min(np.abs(back - unit).max(), np.abs(back + unit).max()) < 1e-9


@given(quaternions)
def test_a_matrix_of_a_quaternion_is_a_rotation(quaternion):
    matrix = matrix_from_quaternion(np.array(quaternion))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(3), atol=1e-12)
    assert np.linalg.det(matrix) == pytest.approx(1)


def test_a_quarter_turn_to_the_left_maps_forward_to_left():
    turn = matrix_from_quaternion(np.array([0, 0, np.sqrt(0.5), np.sqrt(0.5)]))
    np.testing.assert_allclose(turn @ [1, 0, 0], [0, 1, 0], atol=1e-12)


def test_roll_comes_before_pitch_before_yaw():
    roll, pitch, yaw = (matrix_from_rpy(*angles) for angles in ((0.3, 0, 0), (0, 0.2, 0), (0, 0, 0.1)))
    np.testing.assert_allclose(matrix_from_rpy(0.3, 0.2, 0.1), yaw @ pitch @ roll, atol=1e-12)


def test_half_turns_have_a_quaternion_too():
    for axis in np.eye(3):
        matrix = 2 * np.outer(axis, axis) - np.eye(3)
        np.testing.assert_allclose(matrix_from_quaternion(quaternion_from_matrix(matrix)), matrix, atol=1e-12)


def test_batches_are_rotated_one_by_one():
    quaternion = np.random.default_rng(0).normal(size=(2, 5, 4))
    matrices = matrix_from_quaternion(quaternion)
    assert matrices.shape == (2, 5, 3, 3)
    np.testing.assert_allclose(matrices[1, 3], matrix_from_quaternion(quaternion[1, 3]))
    assert quaternion_from_matrix(matrices).shape == (2, 5, 4)
