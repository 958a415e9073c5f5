"""Which tests live in real time, and which only take long."""

from __future__ import annotations

# They talk over DDS, or wait for processes and kill them.
REAL_TIME = (
    "test/engine/process/",
    "test/ros/",
    "test/test_domains.py",
    *(f"test/tools/test_{name}.py" for name in ("bench_node", "closed_loop", "drive_node", "drive_video")),
    *(f"test/tools/test_{name}.py" for name in ("play_bag", "soak", "watch")),
)
# They do, too, but play so slowly or in such lock step that nothing depends on what else runs.
PATIENT = ("test/live/", "test/ros/test_small_model.py")
WITHOUT_DDS = ("test/ros/test_build.py", "test/ros/test_drive_")


def is_real_time(test: str) -> bool:
    """Whether the test with that id, which begins with its file's path, must not run beside others of the kind."""
    return test.startswith(REAL_TIME) and not test.startswith((*PATIENT, *WITHOUT_DDS))


def may_talk_over_dds(test: str) -> bool:
    """Whether that is known here."""
    return test.startswith((*REAL_TIME, *PATIENT)) and not test.startswith(WITHOUT_DDS)


def longest_first(test: str) -> int:
    """What to sort by, so that no process is left with a long file when the others are done."""
    return 0 if is_real_time(test) else 1 if test.startswith((*PATIENT, *WITHOUT_DDS)) else 2
