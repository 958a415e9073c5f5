"""The vehicle's poses from /tf, for drives without odometry; the velocity comes from differences."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.incoming import mounting_from_transform, stamp_ns
from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.rotation import matrix_from_quaternion, quaternion_from_matrix, rotation_vector, slerp
from alpamayo_ros.core.settings import OdometrySettings
from alpamayo_ros.core.types import Array, ConfigurationError, EgoPose
from alpamayo_ros.evaluation.bag import BagMessage, BagReader
from alpamayo_ros.evaluation.pose_source import TF_STATIC_TOPIC, TRANSFORMS, ReceivedPose

TF_TOPIC = "/tf"
PARENTS = ("odom", "map")  # that are looked for when none is given; odom first, since it doesn't jump
DEFAULT_WINDOW = 0.2  # s
LONGEST_SPAN = 1.0  # s between two poses that still say something of the velocity


@dataclass(frozen=True)
class TransformFrames:
    """Which transforms are the vehicle's pose."""

    parent: str = ""  # "": odom, or map where no transforms lead from odom
    child: str = ""  # "": odometry.base_frame
    window: float = DEFAULT_WINDOW  # s that the velocity is a mean over


class TransformPoses:
    """Poses of a child frame in a parent frame, through any number of transforms between them.

    There is a pose for every message with the moving transform next to the child, at its stamp; others on the way, such
    as map to odom, are taken as they were last. The twist is the mean over the last `window` s, so it is window / 2
    late; there is none until the window is filled.

    Raises:
        ConfigurationError: the window can't be used.
    """

    topic, kind, chosen_by = TF_TOPIC, TRANSFORMS, "--pose-source tf"
    warning = ""  # whoever asks for frames by name gets these

    def __init__(self, frames: TransformFrames, settings: OdometrySettings) -> None:
        if not 0.01 <= frames.window <= LONGEST_SPAN:
            raise ConfigurationError(f"a window of {frames.window} s: expected 0.01 to {LONGEST_SPAN} s")
        self._frames = replace(frames, child=frames.child or settings.base_frame)
        self._settings = settings
        self._child_frame = ChildFrame(settings)
        self._tree = TransformTree()
        self._recent: deque[EgoPose] = deque()  # the newest last, and one that is at least the window older

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
                return []
        return [
            f"no moving transforms lead from {' or '.join(candidates)} to {self._frames.child}; /tf and /tf_static "
            f"have {tree.describe() or 'none'}: choose with --tf-parent and --tf-child"
        ]

    def poses(self, message: BagMessage) -> list[ReceivedPose]:
        """Those of a message on /tf: none, if it has only other transforms."""
        found = []
        for transform in message.message.transforms:
            edge = self._tree.add([transform], moving=True)
            way = self._tree.moving_way(self._frames.parent, self._frames.child)
            if way is None or edge != way.moving:
                continue
            place = way.place
            pose = EgoPose(stamp_ns(transform.header.stamp), place.position, quaternion_from_matrix(place.rotation))
            pose = self._child_frame.base_pose(self._with_twist(pose), self._frames.child)
            found.append(ReceivedPose(pose, self._frames.parent, self._frames.child))
        return found

    def add_static(self, content: Any) -> None:
        """Transforms on the way, and from the child to base_link."""
        self._tree.add(content.transforms, moving=False)
        self._child_frame.add_static(content)

    def fresh(self) -> TransformPoses:
        """One that hasn't heard anything."""
        return TransformPoses(self._frames, self._settings)

    def _with_twist(self, pose: EgoPose) -> EgoPose:
        recent, window_ns = self._recent, round(self._frames.window * 1e9)
        if recent and pose.stamp_ns <= recent[-1].stamp_ns:
            if recent[-1].stamp_ns - pose.stamp_ns > window_ns:
                recent.clear()  # the recording begins anew
            else:
                return pose  # late: it says nothing of the velocity
        recent.append(pose)
        while len(recent) > 1 and pose.stamp_ns - recent[1].stamp_ns >= window_ns:
            recent.popleft()
        span = (pose.stamp_ns - recent[0].stamp_ns) * 1e-9
        if not self._frames.window <= span <= LONGEST_SPAN:
            return pose
        linear, angular = mean_twist(recent[0], pose, span)
        return replace(pose, linear_velocity=linear, angular_velocity=angular)


def mean_twist(first: EgoPose, last: EgoPose, seconds: float) -> tuple[Array, Array]:
    """The mean velocity [3] m/s and turn rate [3] rad/s between two poses, seen from the vehicle in the middle."""
    middle = slerp(first.orientation[None], last.orientation[None], np.array([[0.5]]))[0]
    a, b = matrix_from_quaternion(first.orientation), matrix_from_quaternion(last.orientation)
    linear = matrix_from_quaternion(middle).T @ (last.position - first.position) / seconds
    return linear, rotation_vector(a.T @ b) / seconds


Edge = tuple[str, str]  # parent and child


@dataclass(frozen=True, eq=False)
class Way:
    """From a frame down to another one."""

    place: Mounting  # of the lower frame in the upper one
    moving: Edge | None  # the lowest transform that moves; None when all are static


class TransformTree:
    """What is known of frames: for each, where it is in its parents, as last said."""

    def __init__(self) -> None:
        self._parents: dict[str, dict[str, tuple[Mounting, bool]]] = {}  # child -> parent -> where, and if it moves
        self._counts: dict[Edge, int] = {}

    def add(self, transforms: Iterable[Any], *, moving: bool) -> Edge | None:
        """Transforms of a message; the last one's frames, or None where it is no rotation and is ignored."""
        edge = None
        for transform in transforms:
            mounting = mounting_from_transform(transform)
            edge = None
            if mounting is not None:
                edge = (transform.header.frame_id.lstrip("/"), transform.child_frame_id.lstrip("/"))
                self._parents.setdefault(edge[1], {})[edge[0]] = (mounting, moving)
                self._counts[edge] = self._counts.get(edge, 0) + 1
        return edge

    def moving_way(self, parent: str, child: str) -> Way | None:
        """The shortest way from a parent down to a child; None when there is none that moves."""
        ways = {child: Way(Mounting(np.zeros(3), np.eye(3)), None)}
        waiting = deque([child])
        while waiting and parent not in ways:
            here = waiting.popleft()
            below = ways[here]
            for above, (mounting, moving) in self._parents.get(here, {}).items():
                if above not in ways:
                    lowest = below.moving or ((above, here) if moving else None)
                    ways[above] = Way(mounting.then(below.place), lowest)
                    waiting.append(above)
        found = ways.get(parent)
        return found if found is not None and found.moving is not None else None

    def describe(self) -> str:
        """Every transform with its number of messages, in words."""
        return ", ".join(f"{parent} -> {child} ({count})" for (parent, child), count in sorted(self._counts.items()))
