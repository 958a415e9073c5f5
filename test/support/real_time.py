"""Tests that live in real time: those that talk over DDS, or wait for processes and kill them."""

from __future__ import annotations

REAL_TIME = (
    "test/engine/process/",
    "test/live/",
    "test/ros/",
    "test/test_domains.py",
    *(f"test/tools/test_{name}.py" for name in ("bench_node", "closed_loop", "drive_node", "drive_video")),
    *(f"test/tools/test_{name}.py" for name in ("play_bag", "soak", "watch")),
)
VIRTUAL_TIME = ("test/ros/test_build.py", "test/ros/test_drive_")  # of those, but without DDS and clocks


def is_real_time(test: str) -> bool:
    """Whether the test with that id, which begins with its file's path, is one of them."""
    return test.startswith(REAL_TIME) and not test.startswith(VIRTUAL_TIME)
