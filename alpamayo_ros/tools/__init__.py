"""Command-line programs."""

import os
import signal
import sys


def _end(number: int, _frame: object) -> None:
    os.write(2, b"\ninterrupted\n")
    os._exit(128 + number)


# `python -m` calls itself "-m" until the program runs. Until then its imports, which take a second or more, are all
# that a signal can interrupt; run_command (command.py) takes over from here.
if sys.argv[:1] == ["-m"]:
    for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(_number) is not signal.SIG_IGN:
            signal.signal(_number, _end)
