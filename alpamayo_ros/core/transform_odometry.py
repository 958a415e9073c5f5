"""The vehicle's poses from /tf, for drives without odometry."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from alpamayo_ros.core.child_frame import ChildFrame
from alpamayo_ros.core.incoming import pose_from_transform
from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.odometry import normalised, pose_fault
from alpamayo_ros.core.rotation import matrix_from_quaternion, quaternion_from_matrix
from alpamayo_ros.core.stream import LATE_NS
from alpamayo_ros.core.transform_history import BACK, TransformHistory
from alpamayo_ros.core.transform_tree import Edge, Link, TransformTree, composed, edge_of
from alpamayo_ros.core.types import EgoPose

MOST_WAITING = 200  # poses
LONG_WAIT_NS = 500_000_000  # a pose that waits longer than this for a transform further up is spoken of


class TransformOdometry:
    """Poses of a child frame in a parent frame, through any number of transforms between them.

    There is a pose for every message with the lowest transform that moves, at its stamp. Others that move on the way
    are interpolated to that stamp, as tf2 does it: the pose comes when they have reached it, and not at all where two
    of them are more than 1 s apart. No velocity is told: one made of the poses would explain their jumps.

    Args:
        parent: the frame that the poses are in.
        child: the vehicle's.
        child_frame: knows the way from it to base_link.
    """

    def __init__(self, parent: str, child: str, child_frame: ChildFrame) -> None:
        self.parent, self.child = parent.lstrip("/"), child.lstrip("/")  # as the tree has them
        self._child_frame = child_frame
        self._tree = TransformTree()
        self._seen_changes = 0  # of the tree
        self._way: tuple[Link, ...] | None = None  # now; what follows is of the last one that there was
        self._key: tuple[Any, ...] = ()  # what tells it from others
        self._number = 0  # another one, or a jump on it, is another frame: its poses don't go with the former ones
        self._lowest: Edge | None = None  # of those that move
        self._above: tuple[Link, ...] = ()  # it
        self._moving: dict[Edge, TransformHistory] = {}  # of these
        self._below = composed(())  # from there down to the child
        self._newest_ns = self._back = 0  # its newest stamp, and how many in a row were more than 1 s older
        self._unknown = 0  # poses in a row that were left out
        self._waiting: deque[EgoPose] = deque(maxlen=MOST_WAITING)  # the lowest transform, for those further up

    @property
    def child_label(self) -> str:
        """The child frame's name for the builder: another one when the way has changed."""
        own = self._child_frame.label(self.child)
        return own if self._number < 2 else f"{own} (way {self._number})"

    @property
    def warning(self) -> str:
        """Why there are no poses although transforms come; "" when there are, or none has come. From any thread."""
        known = self._tree.describe()
        if not known:
            return ""
        if self._way is None:
            return (
                f"no moving transforms lead from {self.parent!r} (odometry.tf_parent) to {self.child!r} "
                f"(odometry.base_frame); /tf and /tf_static have {known}"
            )
        waiting, newest = self._waiting, {edge: history.newest_ns or 0 for edge, history in self._moving.items()}
        if waiting and newest:
            late = min(newest, key=newest.__getitem__)
            behind_ns = waiting[-1].stamp_ns - newest[late]
            if behind_ns > LONG_WAIT_NS:
                name = f"{late[0]} -> {late[1]}"
                return f"the poses wait for the transform {name}, whose newest is {behind_ns * 1e-9:.1f} s older"
        return f"{self._unknown} poses are left out: a transform further up has gaps over 1 s" if self._unknown else ""

    def poses(self, transforms: Iterable[Any]) -> list[EgoPose]:
        """Those of base_link that the transforms of a message on /tf make known: often none.

        One that is no pose is there as it came, for the builder to refuse by name.
        """
        came = [(edge_of(transform), transform) for transform in transforms]
        for edge, _ in came:
            self._tree.add_moving(edge)
        self._find_way()
        if self._way is None:
            return []
        found = []
        for edge, transform in came:
            if edge != self._lowest and edge not in self._moving:
                continue
            place = pose_from_transform(transform)
            if pose_fault(place) is not None:
                found.append(place)
            elif edge == self._lowest:
                self._watch_time(place.stamp_ns)
                self._waiting.append(normalised(place))
            elif self._moving[edge].add(normalised(place)):
                self._number += 1
        return found + self._ready()

    def add_static(self, message: Any) -> None:
        """A tf2_msgs/TFMessage of /tf_static: transforms on the way, and from the child to base_link."""
        self._tree.add_static(message.transforms)
        self._child_frame.add_static(message)

    def _find_way(self) -> None:
        """The present one, if anything has changed."""
        if self._tree.changes == self._seen_changes:
            return
        self._seen_changes = self._tree.changes
        self._way = self._tree.way(self.parent, self.child)
        if self._way is None:
            return
        key = tuple((link.edge, link.place and link.place.key) for link in self._way)
        if key == self._key:
            return  # what has changed is elsewhere
        lowest = max(at for at, link in enumerate(self._way) if link.place is None)
        self._key, self._number = key, self._number + 1
        self._above, self._lowest = self._way[:lowest], self._way[lowest].edge
        self._moving = {link.edge: TransformHistory() for link in self._above if link.place is None}
        self._below = composed(self._way[lowest + 1 :])
        self._waiting = deque(maxlen=MOST_WAITING)

    def _watch_time(self, stamp_ns: int) -> None:
        """Where time has jumped back, what was known of transforms further up is of another drive."""
        self._back = self._back + 1 if stamp_ns < self._newest_ns - LATE_NS else 0
        if self._back >= BACK:
            self._moving = {edge: TransformHistory() for edge in self._moving}
            self._waiting = deque(maxlen=MOST_WAITING)
            self._newest_ns = self._back = 0
        self._newest_ns = max(self._newest_ns, stamp_ns)

    def _ready(self) -> list[EgoPose]:
        """The poses that wait for nothing any more."""
        found, still = [], list[EgoPose]()
        for place in self._waiting:
            above = self._above_at(place.stamp_ns)
            if above is not None:
                self._unknown = 0
                found.append(self._child_frame.base_pose(self._joined(above, place), self.child))
            elif any((history.newest_ns or 0) < place.stamp_ns for history in self._moving.values()):
                still.append(place)
            else:
                self._unknown += 1
        self._waiting = deque(still, MOST_WAITING)
        return found

    def _above_at(self, stamp_ns: int) -> Mounting | None:
        """Where the parent of the lowest transform that moves was then; None when that isn't known."""
        place = composed(())
        for link in self._above:
            step = link.place
            if step is None:
                moved = self._moving[link.edge].at(stamp_ns)
                if moved is None:
                    return None
                step = Mounting(moved.position, matrix_from_quaternion(moved.orientation))
            place = place.then(step)
        return place

    def _joined(self, above: Mounting, place: EgoPose) -> EgoPose:
        """The child's pose in the parent."""
        if not above.is_identity:
            whole = above.then(Mounting(place.position, matrix_from_quaternion(place.orientation)))
            place = EgoPose(place.stamp_ns, whole.position, quaternion_from_matrix(whole.rotation))
        return self._below.base_pose(place)
