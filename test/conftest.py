"""ROS isolation for every test: no test hears another, on this machine or the network."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent / "support"))  # helpers that several test folders share

# Before rclpy is imported anywhere: participants on this host alone, and transports that carry images.
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["FASTDDS_BUILTIN_TRANSPORTS"] = "LARGE_DATA"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models gain nothing from more, and wait for it on a busy machine
os.environ.pop("ROS_LOCALHOST_ONLY", None)  # the older switch would win

FIRST_DOMAIN, DOMAINS_PER_WORKER, WORKERS = 20, 25, 8  # below 232, above which ports run out
_used = 0


def worker_number() -> int:
    """The number of this xdist worker; without xdist one that another run on this machine seldom has."""
    worker = re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", ""))
    return int(worker or os.getpid()) % WORKERS


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch) -> int:
    """A ROS domain that no other running test has; in the environment too, for processes that the test starts."""
    global _used
    domain = FIRST_DOMAIN + worker_number() * DOMAINS_PER_WORKER + _used % DOMAINS_PER_WORKER
    _used += 1
    monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
    return domain


def pytest_sessionfinish() -> None:
    """End what a failing test has left behind, such as a node that would go on by itself."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
