"""The vehicle's poses from /tf, for drives without odometry; the velocity comes from differences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.incoming import pose_from_transform
from alpamayo_ros.core.odometry import pose_fault
from alpamayo_ros.core.rotation import matrix_from_quaternion, quaternion_from_matrix, rotation_vector, slerp
from alpamayo_ros.core.transform_tree import TransformTree, edge_of
from alpamayo_ros.core.types import Array, EgoPose

DEFAULT_WINDOW = 0.2  # s
LONGEST_SPAN = 1.0  # s between two poses that still say something of the velocity


class TransformOdometry:
    """Poses of a child frame in a parent frame, through any number of transforms between them.

    There is a pose for every message with the moving transform next to the child, at its stamp; others on the way, such
    as map to odom, are taken as they were last. The twist is the mean over the last `window` s, so it is window / 2
    late; there is none until the window is filled.

    Args:
        parent: the frame that the poses are in.
        child: the vehicle's.
        child_frame: knows the way from it to base_link.
        window: s that the velocity is a mean over.
    """

    def __init__(self, parent: str, child: str, child_frame: ChildFrame, window: float = DEFAULT_WINDOW) -> None:
        self.parent, self.child = parent.lstrip("/"), child.lstrip("/")  # as the tree has them
        self._child_frame = child_frame
        self._window = window
        self._tree = TransformTree()
        self._recent: deque[EgoPose] = deque()  # the newest last, and one that is at least the window older

    def poses(self, transforms: Iterable[Any]) -> list[EgoPose]:
        """Those of base_link in the transforms of a message on /tf: none, if it has only others.

        One that is no pose is there as it came, for the builder to refuse by name.
        """
        found = []
        for transform in transforms:
            self._tree.add([transform], moving=True)
            way = self._tree.moving_way(self.parent, self.child)
            if way is None or edge_of(transform) != way.moving:
                continue
            pose = pose_from_transform(transform)
            if pose_fault(pose) is None:
                place = way.place
                pose = EgoPose(pose.stamp_ns, place.position, quaternion_from_matrix(place.rotation))
            if pose_fault(pose) is None:  # nor a transform further up is at fault
                pose = self._with_twist(pose)
            found.append(self._child_frame.base_pose(pose, self.child))
        return found

    def add_static(self, message: Any) -> None:
        """A tf2_msgs/TFMessage of /tf_static: transforms on the way, and from the child to base_link."""
        self._tree.add(message.transforms, moving=False)
        self._child_frame.add_static(message)

    def _with_twist(self, pose: EgoPose) -> EgoPose:
        recent, window_ns = self._recent, round(self._window * 1e9)
        if recent and pose.stamp_ns <= recent[-1].stamp_ns:
            if recent[-1].stamp_ns - pose.stamp_ns > window_ns:
                recent.clear()  # the recording begins anew
            else:
                return pose  # late: it says nothing of the velocity
        recent.append(pose)
        while len(recent) > 1 and pose.stamp_ns - recent[1].stamp_ns >= window_ns:
            recent.popleft()
        span = (pose.stamp_ns - recent[0].stamp_ns) * 1e-9
        if not self._window <= span <= LONGEST_SPAN:
            return pose
        linear, angular = mean_twist(recent[0], pose, span)
        return replace(pose, linear_velocity=linear, angular_velocity=angular)


def mean_twist(first: EgoPose, last: EgoPose, seconds: float) -> tuple[Array, Array]:
    """The mean velocity [3] m/s and turn rate [3] rad/s between two poses, seen from the vehicle in the middle."""
    middle = slerp(first.orientation[None], last.orientation[None], np.array([[0.5]]))[0]
    a, b = matrix_from_quaternion(first.orientation), matrix_from_quaternion(last.orientation)
    linear = matrix_from_quaternion(middle).T @ (last.position - first.position) / seconds
    return linear, rotation_vector(a.T @ b) / seconds
