"""Where the vehicle's frame sits in the odometry's child frame, and how a pose and twist move from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_quaternion, matrix_from_rpy, quaternion_from_matrix
from alpamayo_ros.core.types import Array, EgoPose


@dataclass(frozen=True, eq=False)
class Mounting:
    """The pose of base_link in the child frame."""

    position: Array  # [3] m
    rotation: Array  # [3, 3] child <- base_link

    @classmethod
    def from_xyz_rpy(cls, values: Sequence[float]) -> Mounting:
        """From x, y, z in m and roll, pitch, yaw in rad, as `odometry.child_to_base` gives them."""
        return cls(np.array(values[:3], dtype=float), matrix_from_rpy(*values[3:]))

    @property
    def is_identity(self) -> bool:
        """Whether both frames are the same."""
        return not self.position.any() and bool(np.array_equal(self.rotation, np.eye(3)))

    @property
    def key(self) -> bytes:
        """The same for the same place."""
        return self.position.tobytes() + self.rotation.tobytes()

    def is_near(self, other: Mounting) -> bool:
        """Whether both are the same but for rounding: within 1e-6 m, and 1e-6 in each number of the rotation."""
        near = np.allclose(self.position, other.position, rtol=0, atol=1e-6)
        return bool(near and np.allclose(self.rotation, other.rotation, rtol=0, atol=1e-6))

    def inverse(self) -> Mounting:
        """The pose of the child frame in base_link."""
        return Mounting(-self.rotation.T @ self.position, self.rotation.T)

    def then(self, step: Mounting) -> Mounting:
        """Where a frame is that `step` puts into this one."""
        return Mounting(self.position + self.rotation @ step.position, self.rotation @ step.rotation)

    def base_pose(self, child: EgoPose) -> EgoPose:
        """The pose and twist of base_link, from those of the child frame.

        A rigid body's velocity at p is v + w x p (Lynch and Park, Modern Robotics, 3.3.2: the adjoint).
        """
        if self.is_identity:
            return child
        world_from_child = matrix_from_quaternion(child.orientation)
        linear, angular = child.linear_velocity, child.angular_velocity
        if linear is not None and angular is not None:
            linear = self.rotation.T @ (linear + np.cross(angular, self.position))
            angular = self.rotation.T @ angular
        return replace(
            child,
            position=child.position + world_from_child @ self.position,
            orientation=quaternion_from_matrix(world_from_child @ self.rotation),
            linear_velocity=linear,
            angular_velocity=angular,
        )
