"""How a command-line program ends."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from typing import NoReturn

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.evaluation.interruption import raise_on_signals
from alpamayo_ros.standard_streams import open_closed_streams

NODE_NAME = re.compile("/?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*")
USAGE_ERROR = 2  # as argparse has it
INTERRUPTED = 130  # what shells report after Ctrl-C


def run_command(main: Callable[[], int]) -> NoReturn:
    """Run a program's main function, and end the process with the status that it returns.

    That is 0 too when whoever read its output, such as `head`, has seen enough and is gone. SIGTERM and SIGHUP end it
    as Ctrl-C does, with their own status. Streams that it was started without, as services are at times, lead nowhere.
    """
    open_closed_streams()
    for argument in sys.argv[1:]:
        if not _is_utf8(argument):
            print(f"error: {argument!r} is no UTF-8, which reports and pictures need: rename it", file=sys.stderr)
            sys.exit(USAGE_ERROR)
    try:
        raise_on_signals()
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at its end
        status = 0
    except KeyboardInterrupt as interrupt:
        status = _interrupted(interrupt, "interrupted")
    if status > 128:
        # Not sys.exit: when the interrupt came inside exec() of a text (dataclasses and rosbags do that), CPython
        # lets a program run by -m die by SIGINT instead of ending with its status. And threads of libraries may still
        # be at work.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _is_utf8(text: str) -> bool:
    """False where bytes of a file's name stand in it that are none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def guarded(work: Callable[[], int], *, unusable: int = 1, interrupted: str | Callable[[], str] = "interrupted") -> int:
    """A program's work with its errors told in a line each, not as tracebacks.

    Args:
        work: returns the exit status.
        unusable: the status when something can't be used.
        interrupted: what to say after a signal.
    """
    try:
        return work()
    except BrokenPipeError:
        raise
    except (AlpamayoError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return unusable
    except MemoryError:
        print("error: this machine has too little memory for it", file=sys.stderr)
        return unusable
    except KeyboardInterrupt as interrupt:
        return _interrupted(interrupt, interrupted if isinstance(interrupted, str) else interrupted())


def number_within(limit: float) -> Callable[[str], float]:
    """For argparse: a number from -limit to limit; not NaN, which float() would take."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not abs(number) <= limit:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a number from {-limit:.10g} to {limit:.10g}")
        return number

    return parse


def node_name(text: str) -> str:
    """For argparse: a ROS node's full name; without the slash that it begins with, one in the root namespace."""
    if not NODE_NAME.fullmatch(text):
        expected = "letters, digits, underscores and slashes, such as /alpamayo, no part beginning with a digit"
        raise argparse.ArgumentTypeError(f"{text!r}: expected a node's name: {expected}")
    return text


def _interrupted(interrupt: KeyboardInterrupt, text: str) -> int:
    print(f"\n{text}", file=sys.stderr)
    return int(getattr(interrupt, "status", INTERRUPTED))
