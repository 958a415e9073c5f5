"""The executor behind the node: callbacks in a few threads, until a stop event."""

from __future__ import annotations

import threading

from rclpy.executors import MultiThreadedExecutor
from rclpy.node import Node


class NodeExecutor(MultiThreadedExecutor):
    """Serves one node's callbacks. What one of them raises is logged, and the others go on."""

    def run(self, node: Node, stop: threading.Event) -> None:
        """Spin until `stop` is set; then wait for the callbacks under way, and take the node out.

        Not spin(): that ends at the first exception of a callback, and a shutdown from outside races with it.
        """
        self.add_node(node)
        while not stop.is_set():
            try:
                self.spin_once(timeout_sec=0.2)
            except Exception as error:
                node.get_logger().error(f"a callback failed: {type(error).__name__}: {error}")
        # before MultiThreadedExecutor.shutdown, which destroys what callbacks under way still use
        self._executor.shutdown(wait=True)
        self.remove_node(node)
        self.shutdown()
