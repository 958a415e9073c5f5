"""The odometry's frames: where base_link is in its child frame, and whether they change."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
from geometry_msgs.msg import TransformStamped

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.settings import Settings

logger = logging.getLogger(__name__)


class FrameIds:
    """Follows the odometry's frame names.

    A child frame that is not base_frame is brought there by `odometry.child_to_base` or a static transform between
    the two; without either it is taken for base_frame, and `warning` says so.

    Args:
        settings: base_frame and child_to_base.
        changed: is called with the old and new name when the odometry's frame_id changes.
    """

    def __init__(self, settings: Settings, changed: Callable[[str, str], None]) -> None:
        self.odometry_frame = "odom"
        self.warning = ""
        self._base_frame = settings.odometry.base_frame
        self._given = settings.mounting
        self._static: dict[str, Mounting] = {}  # child frame -> where base_frame is in it
        self._changed = changed
        self._seen = False

    def add_static(self, transform: TransformStamped) -> None:
        """A transform from /tf_static."""
        translation, q = transform.transform.translation, transform.transform.rotation
        mounting = Mounting(
            np.array([translation.x, translation.y, translation.z]),
            matrix_from_quaternion(np.array([q.x, q.y, q.z, q.w])),
        )
        if transform.child_frame_id == self._base_frame:
            self._static[transform.header.frame_id] = mounting
        elif transform.header.frame_id == self._base_frame:
            self._static[transform.child_frame_id] = mounting.inverse()

    def check(self, frame_id: str, child_frame_id: str) -> Mounting:
        """Note the frames of one odometry message; returns where base_frame is in the child frame."""
        if self._seen and frame_id != self.odometry_frame:
            self._changed(self.odometry_frame, frame_id)
        self._seen = True
        self.odometry_frame = frame_id
        if not self._given.is_identity:
            return self._given
        if child_frame_id in ("", self._base_frame):
            self.warning = ""
            return self._given
        mounting = self._static.get(child_frame_id)
        warning = (
            ""
            if mounting is not None
            else (
                f"the odometry's child frame is {child_frame_id!r}, taken for {self._base_frame!r}: set "
                f"odometry.child_to_base, or publish a static transform between the two"
            )
        )
        if warning and warning != self.warning:
            logger.warning(warning)
        self.warning = warning
        return self._given if mounting is None else mounting
