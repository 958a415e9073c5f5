"""What transforms say of frames, and the way from one frame down to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpamayo_ros.core.incoming import mounting_from_transform
from alpamayo_ros.core.mounting import Mounting

Edge = tuple[str, str]  # parent and child


def edge_of(transform: Any) -> Edge:
    """The frames of a geometry_msgs/TransformStamped."""
    return transform.header.frame_id.lstrip("/"), transform.child_frame_id.lstrip("/")


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

    def add(self, transforms: Iterable[Any], *, moving: bool) -> None:
        """Transforms of a message; one that is no rotation is ignored."""
        for transform in transforms:
            mounting = mounting_from_transform(transform)
            if mounting is not None:
                edge = edge_of(transform)
                self._parents.setdefault(edge[1], {})[edge[0]] = (mounting, moving)
                self._counts[edge] = self._counts.get(edge, 0) + 1

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
