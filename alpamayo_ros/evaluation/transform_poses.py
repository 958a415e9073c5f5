"""The vehicle's poses from a bag's /tf, for drives without odometry."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.parameter_groups import TF_TOPIC
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.transform_odometry import TransformOdometry
from alpamayo_ros.core.transform_tree import TransformTree, edge_of
from alpamayo_ros.evaluation.bag import BagMessage, BagReader
from alpamayo_ros.evaluation.pose_source import TF_STATIC_TOPIC, TRANSFORMS, OdometryPoses, PoseSource, ReceivedPose

PARENTS = ("odom", "map")  # that are looked for when none is given; odom first, since it doesn't jump


@dataclass(frozen=True)
class TransformFrames:
    """Which transforms are the vehicle's pose."""

    parent: str = ""  # "": odom, or map where no transforms lead from odom
    child: str = ""  # "": odometry.base_frame


class TransformPoses:
    """Poses as TransformOdometry has them. `odometry.child_to_base` is of an odometry, and doesn't count here."""

    topic, kind, chosen_by = TF_TOPIC, TRANSFORMS, "--pose-source tf, or parameter odometry.source"

    def __init__(self, frames: TransformFrames, settings: OdometrySettings) -> None:
        child = frames.child or settings.base_frame
        self._frames = replace(frames, parent=frames.parent.lstrip("/"), child=child.lstrip("/"))
        self._settings = replace(settings, child_to_base=OdometrySettings.child_to_base)
        self._odometry = self._heard_nothing()

    @property
    def description(self) -> str:
        """The frames."""
        return f"tf from {self._frames.parent or ' or '.join(PARENTS)} to {self._frames.child}"

    @property
    def warning(self) -> str:
        """That poses lack something to the end."""
        return self._odometry.warning

    def prepare(self, bag: BagReader) -> list[str]:
        """Choose the parent frame; that no moving transforms lead from it to the child."""
        tree = TransformTree()
        statics = [TF_STATIC_TOPIC] if bag.topics.get(TF_STATIC_TOPIC) == TRANSFORMS else []
        candidates = (self._frames.parent,) if self._frames.parent else PARENTS
        found = set[str]()
        for message in bag.messages([*statics, TF_TOPIC]):
            if message.topic == TF_STATIC_TOPIC:
                tree.add_static(message.message.transforms)
            else:
                for transform in message.message.transforms:
                    tree.add_moving(edge_of(transform))
            found |= {parent for parent in candidates if tree.way(parent, self._frames.child) is not None}
            if candidates[0] in found:
                break
        for parent in candidates:
            if parent in found:
                self._frames = replace(self._frames, parent=parent)
                self._odometry = self._heard_nothing()
                return []
        return [
            f"no moving transforms lead from {' or '.join(candidates)} to {self._frames.child}; /tf and /tf_static "
            f"have {tree.describe() or 'none'}: choose with --tf-parent and --tf-child, or the "
            "parameters odometry.tf_parent and odometry.base_frame"
        ]

    def poses(self, message: BagMessage) -> list[ReceivedPose]:
        """Those that a message on /tf makes known: often none."""
        odometry = self._odometry
        found = odometry.poses(message.message.transforms)
        return [ReceivedPose(pose, odometry.parent, odometry.child_label) for pose in found]

    def add_static(self, content: Any) -> None:
        """Transforms on the way, and from the child to base_link."""
        self._odometry.add_static(content)

    def fresh(self) -> TransformPoses:
        """One that hasn't heard anything."""
        return TransformPoses(self._frames, self._settings)

    def _heard_nothing(self) -> TransformOdometry:
        frames = self._frames
        return TransformOdometry(frames.parent, frames.child, ChildFrame(self._settings))


def poses_by_settings(settings: OdometrySettings) -> PoseSource:
    """Where the node takes them from."""
    if settings.source == "tf":
        return TransformPoses(TransformFrames(settings.tf_parent), settings)
    return OdometryPoses(settings)
