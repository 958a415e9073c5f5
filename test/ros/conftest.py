from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("rclpy", reason="needs rclpy: make setup, or source a ROS 2 installation")

from live import Live


@pytest.fixture
def live(ros_domain: int) -> Iterator[Live]:
    """Nodes in this process, in a ROS domain of their own."""
    running = Live(ros_domain)
    yield running
    running.close()


PUBLISHER = """
import sys, time, importlib, rclpy
rclpy.init()
node = rclpy.create_node("stranger")
kind = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
publisher = node.create_publisher(kind, sys.argv[3], 10)
while True:
    time.sleep(1)
"""


@pytest.fixture
def other_process(ros_domain: int) -> Iterator[Callable[[str, str, str], None]]:
    """Starts a process that offers a topic (module, message, topic): one process can't have a topic with two types."""
    processes = []

    def start(module: str, message: str, topic: str) -> None:
        processes.append(subprocess.Popen([sys.executable, "-c", PUBLISHER, module, message, topic]))

    yield start
    for process in processes:
        process.kill()
        process.wait()
