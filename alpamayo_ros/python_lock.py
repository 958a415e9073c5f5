"""How long a thread may keep Python's lock while another one waits for it."""

import sys

LONGEST = 0.0005  # s; Python's own is ten times as much


def share_python_lock() -> None:
    """Let a thread that waits for Python's lock have it soon, in the whole process.

    A thread that hands a camera's message on goes on for milliseconds, and the path, or what an engine queues next on
    its device, waited for it as long as Python lets one thread go on: 5 ms.
    """
    sys.setswitchinterval(LONGEST)
