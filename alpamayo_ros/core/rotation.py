"""Unit quaternions (x, y, z, w), rotation matrices and roll-pitch-yaw. All take leading batch dimensions."""

from __future__ import annotations

import numpy as np

from alpamayo_ros.core.types import Array


def matrix_from_quaternion(quaternion: Array) -> Array:
    """[..., 4] (x, y, z, w), of any length but zero, to [..., 3, 3]."""
    x, y, z, w = np.moveaxis(quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def quaternion_from_matrix(matrix: Array) -> Array:
    """[..., 3, 3] to unit [..., 4] (x, y, z, w) with w >= 0.

    The eigenvector of the largest eigenvalue of Bar-Itzhack's matrix (J. Guidance 23(6), 2000): well conditioned for
    every rotation, and the nearest rotation when rounding has bent the matrix a little.
    """
    m = matrix
    xx, yy, zz = m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]
    xy, xz, yz = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0], m[..., 1, 2] + m[..., 2, 1]
    wx, wy, wz = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    rows = [
        [xx - yy - zz, xy, xz, wx],
        [xy, yy - xx - zz, yz, wy],
        [xz, yz, zz - xx - yy, wz],
        [wx, wy, wz, xx + yy + zz],
    ]
    symmetric = np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
    quaternion: Array = np.linalg.eigh(symmetric).eigenvectors[..., -1]
    return np.where(quaternion[..., 3:] < 0, -quaternion, quaternion)


def matrix_from_rpy(roll: float, pitch: float, yaw: float) -> Array:
    """Rotation [3, 3] by roll about x, then pitch about y, then yaw about z, all about fixed axes (as in URDF)."""
    (cr, sr), (cp, sp), (cy, sy) = ((np.cos(angle), np.sin(angle)) for angle in (roll, pitch, yaw))
    return np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )


def rotations_about_z(yaw: Array) -> Array:
    """Rotations [..., 3, 3] by yaw [...] rad, to the left."""
    c, s, none, one = np.cos(yaw), np.sin(yaw), np.zeros_like(yaw), np.ones_like(yaw)
    rows = [[c, -s, none], [s, c, none], [none, none, one]]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def slerp(q0: Array, q1: Array, fraction: Array) -> Array:
    """Unit quaternions [n, 4] a fraction [n, 1] of the shorter way from q0 to q1 (Shoemake, SIGGRAPH 1985)."""
    dot = np.sum(q0 * q1, axis=-1, keepdims=True)
    q1 = np.where(dot < 0, -q1, q1)
    dot = np.abs(dot)
    sine = np.linalg.norm(q1 - dot * q0, axis=-1, keepdims=True)
    angle = np.arctan2(sine, dot)
    small = sine < 1e-9  # there the weights are those of a straight line
    safe = np.where(small, 1.0, np.sin(angle))
    w0 = np.where(small, 1 - fraction, np.sin((1 - fraction) * angle) / safe)
    w1 = np.where(small, fraction, np.sin(fraction * angle) / safe)
    mixed = w0 * q0 + w1 * q1
    return mixed / np.linalg.norm(mixed, axis=-1, keepdims=True)


def rotation_vector(matrix: Array) -> Array:
    """Axis times angle [..., 3], rad, of rotations [..., 3, 3]."""
    quaternion = quaternion_from_matrix(matrix)
    length = np.linalg.norm(quaternion[..., :3], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(length, quaternion[..., 3:])
    vector: Array = quaternion[..., :3] * np.where(length > 1e-9, angle / np.maximum(length, 1e-12), 2.0)
    return vector
