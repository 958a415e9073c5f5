"""Serves a node's callbacks: one thread per callback group, until a stop event.

rclpy's MultiThreadedExecutor builds its wait set anew two or three times per message, over every entity of the node,
and hands each callback to another thread. With four cameras and odometry that costs seven times the CPU time of one
thread that waits for the inputs alone (`make bench` has the figures).
"""

from __future__ import annotations

import threading
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node

LONGEST_WAIT = 0.2  # s, after which a thread looks for entities that are new in its group


def serve(node: Node, stop: threading.Event) -> None:
    """Serve the node's callbacks until `stop` is set; then wait for those under way.

    What a callback raises is logged, and the others go on. Groups that get their first entity later are not served.
    """
    lanes = [_Lane(node, group) for group in _groups(node)]
    threads = [threading.Thread(target=lane.run, args=(stop,), name=f"lane {n}") for n, lane in enumerate(lanes)]
    for thread in threads:
        thread.start()
    stop.wait()
    for lane in lanes:
        lane.wake()
    for thread in threads:
        thread.join()
    for lane in lanes:
        lane.shutdown()


class _Lane(SingleThreadedExecutor):
    """One callback group of one node."""

    def __init__(self, node: Node, group: CallbackGroup) -> None:
        super().__init__(context=node.context)
        self._node = node
        self._group = group

    def get_nodes(self) -> list[Node]:
        """The node. It isn't added, since a node can be added to one executor only."""
        return [self._node]

    def can_execute(self, entity: Any) -> bool:
        """Whether it is of this group, and not being served."""
        return entity.callback_group is self._group and super().can_execute(entity)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self.spin_once(timeout_sec=LONGEST_WAIT)
            except ExternalShutdownException:
                return
            except BaseException as error:  # SystemExit too: its group would be served no more, and nobody would notice
                self._node.get_logger().error(f"a callback failed: {type(error).__name__}: {error}")


def _groups(node: Node) -> list[CallbackGroup]:
    kinds = (node.subscriptions, node.timers, node.services, node.clients, node.waitables)
    groups = {entity.callback_group for entities in kinds for entity in entities}
    return [group for group in groups if group is not None]
