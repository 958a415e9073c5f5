"""What transforms say of frames, and where one is in another by them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpamayo_ros.core.incoming import mounting_from_transform
from alpamayo_ros.core.mounting import Mounting

Edge = tuple[str, str]  # parent and child
MOST_DESCRIBED = 12


def edge_of(transform: Any) -> Edge:
    """The frames of a geometry_msgs/TransformStamped, without the slash of ROS 1."""
    return transform.header.frame_id.lstrip("/"), transform.child_frame_id.lstrip("/")


@dataclass(frozen=True, eq=False)
class Link:
    """A frame in its parent."""

    edge: Edge
    place: Mounting | None  # None: it moves


class TransformTree:
    """A frame has one parent, the one that was named last, as tf2 has it."""

    def __init__(self) -> None:
        self.changes = 0  # of a parent, or of a place that doesn't move
        self._links: dict[str, Link] = {}  # by child
        self._counts: Counter[Edge] = Counter()

    def add_moving(self, edge: Edge) -> None:
        """A transform of /tf has come."""
        self._counts[edge] += 1
        link = self._links.get(edge[1])
        if link is None or link.place is not None or link.edge != edge:
            self._links[edge[1]] = Link(edge, None)
            self.changes += 1

    def add_static(self, transforms: Iterable[Any]) -> None:
        """Transforms of /tf_static; one that is none is ignored."""
        for transform in transforms:
            edge, place = edge_of(transform), mounting_from_transform(transform)
            if place is None:
                continue
            self._counts[edge] += 1
            link = self._links.get(edge[1])
            if link is None or link.place is None or link.edge != edge or link.place.key != place.key:
                self._links[edge[1]] = Link(edge, place)
                self.changes += 1

    def way(self, parent: str, child: str) -> tuple[Link, ...] | None:
        """From a parent down to a child; None when none leads there, or nothing on it moves."""
        found: list[Link] = []
        frame = child
        while frame != parent:
            link = self._links.get(frame)
            if link is None or len(found) > len(self._links):  # it goes round in circles
                return None
            found.insert(0, link)
            frame = link.edge[0]
        return tuple(found) if any(link.place is None for link in found) else None

    def find(self, base: str, frame: str) -> Mounting | None:
        """Where a frame is in another one, up and down the tree; None when nothing leads there, or it moves."""
        places = dict(self._upwards(base))
        for common, place in self._upwards(frame):
            if common in places:
                return places[common].inverse().then(place)
        return None

    def _upwards(self, frame: str) -> Iterator[tuple[str, Mounting]]:
        """Frames from this one up, as far as none moves, and where it is in each."""
        place = composed(())
        for _ in range(len(self._links) + 1):  # they may go round in circles
            yield frame, place
            link = self._links.get(frame)
            if link is None or link.place is None:
                return
            frame, place = link.edge[0], link.place.then(place)

    def describe(self) -> str:
        """Every transform with its number of messages, in words."""
        known = sorted(self._counts.items())
        text = ", ".join(f"{parent} -> {child} ({count})" for (parent, child), count in known[:MOST_DESCRIBED])
        return text + (f" and {len(known) - MOST_DESCRIBED} more" if len(known) > MOST_DESCRIBED else "")


def composed(links: Iterable[Link]) -> Mounting:
    """Where the last frame is in the first one; none of them moves."""
    place = Mounting(np.zeros(3), np.eye(3))
    for link in links:
        assert link.place is not None
        place = place.then(link.place)
    return place
