"""How a command-line program ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

INTERRUPTED = 130  # what shells report after Ctrl-C


def run_command(main: Callable[[], int]) -> NoReturn:
    """Run a program's main function, and end the process with the status that it returns.

    That is 0 too when whoever read its output, such as `head`, has seen enough and is gone.
    """
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
        status = 0
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        status = INTERRUPTED
    if status == INTERRUPTED:
        # Not sys.exit: when the interrupt came inside exec() of a text (dataclasses and rosbags do that), CPython
        # lets a program run by -m die by SIGINT instead of ending with its status.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
