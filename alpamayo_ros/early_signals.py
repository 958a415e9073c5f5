"""Signals that come while a program is still importing, which takes a second or more."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable


def end_at_once(status: Callable[[int], int]) -> None:
    """Until other handlers take over, SIGINT, SIGTERM and SIGHUP end the process without a traceback.

    Those that are ignored (nohup) stay so.

    Args:
        status: the exit status for a signal's number.
    """

    def end(number: int, _frame: object) -> None:
        os.write(2, b"\ninterrupted\n")
        os._exit(status(number))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


def is_program() -> bool:
    """Whether `python -m` is importing: it calls itself "-m" until the program runs."""
    return sys.argv[:1] == ["-m"]
