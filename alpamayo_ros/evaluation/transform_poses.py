"""The vehicle's poses from a bag's /tf, for drives without odometry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.parameter_groups import TF_TOPIC
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.transform_odometry import DEFAULT_WINDOW, LONGEST_SPAN, TransformOdometry
from alpamayo_ros.core.transform_tree import TransformTree
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagMessage, BagReader
from alpamayo_ros.evaluation.pose_source import TF_STATIC_TOPIC, TRANSFORMS, OdometryPoses, PoseSource, ReceivedPose

PARENTS = ("odom", "map")  # that are looked for when none is given; odom first, since it doesn't jump


@dataclass(frozen=True)
class TransformFrames:
    """Which transforms are the vehicle's pose."""

    parent: str = ""  # "": odom, or map where no transforms lead from odom
    child: str = ""  # "": odometry.base_frame
    window: float = DEFAULT_WINDOW  # s that the velocity is a mean over


class TransformPoses:
    """Poses as TransformOdometry has them.

    Raises:
        ConfigurationError: the window can't be used.
    """

    topic, kind, chosen_by = TF_TOPIC, TRANSFORMS, "--pose-source tf, or parameter odometry.source"
    warning = ""  # whoever asks for frames by name gets these

    def __init__(self, frames: TransformFrames, settings: OdometrySettings) -> None:
        if not 0.01 <= frames.window <= LONGEST_SPAN:
            raise ConfigurationError(f"a window of {frames.window} s: expected 0.01 to {LONGEST_SPAN} s")
        child = frames.child or settings.base_frame
        self._frames = replace(frames, parent=frames.parent.lstrip("/"), child=child.lstrip("/"))
        self._settings = settings
        self._odometry = self._heard_nothing()

    @property
    def description(self) -> str:
        """The frames and the window."""
        parent = self._frames.parent or " or ".join(PARENTS)
        return f"tf from {parent} to {self._frames.child}, velocity over {self._frames.window:g} s"

    def prepare(self, bag: BagReader) -> list[str]:
        """Choose the parent frame; that no moving transforms lead from it to the child."""
        tree = TransformTree()
        statics = [TF_STATIC_TOPIC] if bag.topics.get(TF_STATIC_TOPIC) == TRANSFORMS else []
        wanted = self._frames.parent or PARENTS[0]
        for message in bag.messages([*statics, TF_TOPIC]):
            tree.add(message.message.transforms, moving=message.topic == TF_TOPIC)
            if message.topic == TF_TOPIC and tree.moving_way(wanted, self._frames.child) is not None:
                break
        candidates = (self._frames.parent,) if self._frames.parent else PARENTS
        for parent in candidates:
            if tree.moving_way(parent, self._frames.child) is not None:
                self._frames = replace(self._frames, parent=parent)
                self._odometry = self._heard_nothing()
                return []
        return [
            f"no moving transforms lead from {' or '.join(candidates)} to {self._frames.child}; /tf and /tf_static "
            f"have {tree.describe() or 'none'}: choose with --tf-parent and --tf-child, or the "
            "parameters odometry.tf_parent and odometry.base_frame"
        ]

    def poses(self, message: BagMessage) -> list[ReceivedPose]:
        """Those of a message on /tf: none, if it has only other transforms."""
        odometry = self._odometry
        found = odometry.poses(message.message.transforms)
        return [ReceivedPose(pose, odometry.parent, odometry.child) for pose in found]

    def add_static(self, content: Any) -> None:
        """Transforms on the way, and from the child to base_link."""
        self._odometry.add_static(content)

    def fresh(self) -> TransformPoses:
        """One that hasn't heard anything."""
        return TransformPoses(self._frames, self._settings)

    def _heard_nothing(self) -> TransformOdometry:
        frames = self._frames
        return TransformOdometry(frames.parent, frames.child, ChildFrame(self._settings), frames.window)


def poses_by_settings(settings: OdometrySettings) -> PoseSource:
    """Where the node takes them from."""
    if settings.source == "tf":
        return TransformPoses(TransformFrames(settings.tf_parent), settings)
    return OdometryPoses(settings)
