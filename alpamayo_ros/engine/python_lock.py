"""How long a thread may keep Python's lock while another one waits for it."""

import sys

LONGEST = 0.001  # s; Python's own is 5 ms. With less, who publishes loses the lock more often in the midst of it


def share_python_lock() -> None:
    """Let a thread that waits for Python's lock have it soon, in the whole process.

    When four frames come at once, the thread that takes them goes on for milliseconds, and the path, or what an engine
    queues next on its device, waits as long as Python lets one thread go on.
    """
    sys.setswitchinterval(LONGEST)
