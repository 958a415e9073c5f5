"""ROS isolation for every test: no test hears another, on this machine or the network."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

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
from real_time import longest_first, may_talk_over_dds

# Under nohup and in a script's background SIGHUP or SIGINT is ignored, and every child inherits that. A handler is not
# inherited: this process goes on ignoring the signal, and what it starts gets it as from a terminal.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda _number, _frame: None)


# A machine that is busy, or the first use of a torch function, is no fault of what is tested.
settings.register_profile("patient", deadline=timedelta(seconds=5), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def ros_domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A ROS domain that no other test has that runs on this machine; in the environment too, for processes."""
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        yield domain


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How `pytest -n 2` deals out the tests."""
    from side_by_side import RealTimeTogether

    return RealTimeTogether(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a test that talks over DDS in a file of which that isn't known; one of xdist's processes sorts them."""
    for item in items:
        if "ros_domain" in getattr(item, "fixturenames", ()) and not may_talk_over_dds(item.nodeid):
            raise pytest.UsageError(f"{item.nodeid} talks over DDS: name its file in test/support/real_time.py")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: longest_first(item.nodeid))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what a failing test has left behind, such as a node that would go on by itself."""
    if session.config.pluginmanager.has_plugin("dsession"):
        return  # the children here are xdist's workers, which do the same for theirs
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
