"""Where base_link is in the odometry's child frame: by parameter, by /tf_static, or taken to be the same."""

from __future__ import annotations

import logging

import numpy as np
from geometry_msgs.msg import TransformStamped

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.settings import OdometrySettings

logger = logging.getLogger(__name__)


class ChildFrame:
    """Knows the way from the odometry's child frame to base_frame.

    That is `odometry.child_to_base`, or a static transform between the two. A child frame with another name and
    neither of these is taken for base_frame, and `warning` says so.
    """

    def __init__(self, settings: OdometrySettings) -> None:
        self.warning = ""
        self._base_frame = settings.base_frame
        self._given = Mounting.from_xyz_rpy(settings.child_to_base)
        self._static: dict[str, Mounting] = {}  # child frame -> where base_frame is in it

    def add_static(self, transform: TransformStamped) -> None:
        """A transform from /tf_static; what doesn't touch base_frame is ignored."""
        translation, q = transform.transform.translation, transform.transform.rotation
        orientation = np.array([q.x, q.y, q.z, q.w])
        if not (np.isfinite(orientation).all() and orientation.any()):
            return
        position = np.array([translation.x, translation.y, translation.z])
        mounting = Mounting(position, matrix_from_quaternion(orientation))
        if transform.child_frame_id == self._base_frame:
            self._static[transform.header.frame_id] = mounting
        elif transform.header.frame_id == self._base_frame:
            self._static[transform.child_frame_id] = mounting.inverse()

    def mounting(self, child_frame_id: str) -> Mounting:
        """Where base_frame is in that child frame."""
        known = child_frame_id in ("", self._base_frame) or not self._given.is_identity
        found = self._given if known else self._static.get(child_frame_id)
        warning = (
            ""
            if found is not None
            else (
                f"the odometry's child frame is {child_frame_id!r}, taken for {self._base_frame!r}: set "
                "odometry.child_to_base, or publish a static transform between the two"
            )
        )
        if warning and warning != self.warning:
            logger.warning(warning)
        self.warning = warning
        return self._given if found is None else found
