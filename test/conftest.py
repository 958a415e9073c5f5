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
from hypothesis import HealthCheck, settings

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


# A machine that is busy, or the first use of a torch function, is no fault of what is tested.
settings.register_profile("without times", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("without times")

PROCESSES = Path(__file__).parent / "engine" / "process"  # whose tests wait for processes and kill them


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A ROS domain that no other test has that runs on this machine; in the environment too, for processes."""
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        yield domain


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For pytest-xdist: what lives in real time runs in one process, one after the other, as without xdist."""
    for item in items:
        if "ros_domain" in getattr(item, "fixturenames", ()) or item.path.is_relative_to(PROCESSES):
            item.add_marker(pytest.mark.xdist_group("real time"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what a failing test has left behind, such as a node that would go on by itself."""
    if session.config.pluginmanager.has_plugin("dsession"):
        return  # the children here are xdist's workers, which do the same for theirs
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
