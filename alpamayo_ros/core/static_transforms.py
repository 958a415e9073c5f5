"""What /tf_static says, and where one frame is in another by it."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from alpamayo_ros.core.incoming import mounting_from_transform
from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.transform_tree import edge_of


class StaticTransforms:
    """A tree of frames, in either direction."""

    def __init__(self) -> None:
        self._edges: dict[str, dict[str, Mounting]] = {}  # frame -> frame -> where the second is in the first

    def add(self, message: Any) -> None:
        """A tf2_msgs/TFMessage; a transform that is no rotation is ignored, a newer one replaces."""
        for transform in message.transforms:
            mounting = mounting_from_transform(transform)
            if mounting is not None:
                parent, child = edge_of(transform)
                self._edges.setdefault(parent, {})[child] = mounting
                self._edges.setdefault(child, {})[parent] = mounting.inverse()

    def find(self, base: str, frame: str) -> Mounting | None:
        """Where `frame` is in `base`; None when no transforms lead there."""
        known = {base: Mounting(np.zeros(3), np.eye(3))}
        waiting = deque([base])
        while waiting and frame not in known:
            here = waiting.popleft()
            for there, step in self._edges.get(here, {}).items():
                if there not in known:
                    known[there] = known[here].then(step)
                    waiting.append(there)
        return known.get(frame)
