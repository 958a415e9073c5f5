"""Where base_link is in the odometry's child frame: by parameter, by /tf_static, or taken to be the same."""

from __future__ import annotations

from typing import Any

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.odometry import pose_fault
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.transform_tree import TransformTree
from alpamayo_ros.core.types import EgoPose


class ChildFrame:
    """Brings poses of the odometry's child frame to base_frame.

    The way is `odometry.child_to_base`, or any number of static transforms between the two. A child frame with another
    name and neither of these is taken for base_frame, and `warning` says so.
    """

    def __init__(self, settings: OdometrySettings) -> None:
        self.warning = ""
        self._base_frame = settings.base_frame.lstrip("/")
        self._given = Mounting.from_xyz_rpy(settings.child_to_base)
        self._static = TransformTree()
        self._used = "", self._given  # by the last pose: its child frame, and where base_frame is in it
        self._number = 1  # of the way
        self._found: dict[str, Mounting | None] = {}  # child frame -> where base_frame is in it, by _static

    def add_static(self, message: Any) -> None:
        """A tf2_msgs/TFMessage of /tf_static."""
        self._static.add_static(message.transforms)
        self._found.clear()

    def mounting(self, child_frame_id: str) -> Mounting:
        """Where base_frame is in that child frame."""
        known = child_frame_id.lstrip("/") in ("", self._base_frame) or not self._given.is_identity
        found = self._given if known else self._by_transforms(child_frame_id)
        self.warning = (
            ""
            if found is not None
            else (
                f"the odometry's child frame is {child_frame_id!r}, taken for {self._base_frame!r}: set "
                "odometry.child_to_base, or publish static transforms between the two"
            )
        )
        return self._given if found is None else found

    def _by_transforms(self, child_frame_id: str) -> Mounting | None:
        if child_frame_id not in self._found:  # once, and not for every pose
            self._found = {child_frame_id: self._static.find(child_frame_id.lstrip("/"), self._base_frame)}
        return self._found[child_frame_id]

    def base_pose(self, pose: EgoPose, child_frame_id: str) -> EgoPose:
        """The pose of base_frame; one that is no pose stays as it is, for the builder to refuse by name."""
        mounting = self.mounting(child_frame_id)
        if pose_fault(pose) is not None:
            return pose
        former, used = self._used
        if former == child_frame_id and used is not mounting and not used.is_near(mounting):
            self._number += 1
        self._used = child_frame_id, mounting
        return mounting.base_pose(pose)

    def label(self, child_frame_id: str) -> str:
        """The child frame's name for the builder: another one when base_frame's place in it has changed.

        Poses before and after don't go together, as those of different frames don't.
        """
        return f"{child_frame_id} (way {self._number})" if self._number > 1 else child_frame_id
