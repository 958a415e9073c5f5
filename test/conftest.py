"""ROS isolation for every test: no test hears another, on this machine or the network."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # helpers that several test folders share

# Before rclpy is imported anywhere: participants on this host alone, and transports that carry images.
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["FASTDDS_BUILTIN_TRANSPORTS"] = "LARGE_DATA"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models gain nothing from more, and wait for it on a busy machine
os.environ.pop("ROS_LOCALHOST_ONLY", None)  # the older switch would win

from domains import free_domain

# Under nohup and in a script's background SIGHUP or SIGINT is ignored, and every child inherits that. A handler is not
# inherited: this process goes on ignoring the signal, and what it starts gets it as from a terminal.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda _number, _frame: None)


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A ROS domain that no other test has that runs on this machine; in the environment too, for processes."""
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        yield domain


def pytest_sessionfinish() -> None:
    """End what a failing test has left behind, such as a node that would go on by itself."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
