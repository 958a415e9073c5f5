from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("rclpy", reason="needs rclpy: make setup, or source a ROS 2 installation")

from live import FRONT, Driver, Live, wait_until
from rclpy.publisher import Publisher

from alpamayo_ros.tools.evaluate_live import build_parser, evaluate


@pytest.fixture
def live(ros_domain: int) -> Iterator[Live]:
    """Nodes in this process, in a ROS domain of their own."""
    running = Live(ros_domain)
    yield running
    running.close()


@pytest.fixture
def evaluating_live(live: Live, tmp_path: Path) -> Callable[..., AbstractContextManager[Path]]:
    """Evaluates what is driven in a block, beside the node under test."""

    @contextmanager
    def evaluating(driver: Driver, heard: Sequence[Publisher[Any]], *arguments: str, **odometry: str) -> Iterator[Path]:
        """Gives the folder of the results, which are there after the block, when some path was scored.

        Args:
            driver: Of the vehicle.
            heard: What it publishes for node and evaluation both.
            arguments: Of the command line, besides the rig and the folder.
            odometry: Parameters of the rig.
        """
        rig, out = tmp_path / "rig.yaml", tmp_path / "out"
        parameters = {**FRONT, "engine.kind": "null", **{f"odometry.{name}": value for name, value in odometry.items()}}
        rig.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
        options = build_parser().parse_args(["--config", str(rig), "--out", str(out), *arguments])
        stop, codes = threading.Event(), []
        listening = threading.Thread(target=lambda: codes.append(evaluate(options, stop, live.context)))
        listening.start()
        try:
            both = lambda: all(publisher.get_subscription_count() == 2 for publisher in heard)  # noqa: E731
            wait_until(both, "the evaluation to listen", timeout=20.0)
            wait_until(lambda: driver.count_subscribers("/alpamayo/output/candidates") == 2, "its other subscriptions")
            yield out
        finally:
            stop.set()
            listening.join(20)
        assert codes == [0]

    return evaluating


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
