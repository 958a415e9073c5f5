"""Standard input, output and error, of which a service may be started without any."""

from __future__ import annotations

import os
import sys


def open_closed_streams() -> None:
    """Have standard streams that this process was started without lead nowhere. To be called before files are opened.

    What is opened later would get the number of such a stream, and what is printed would be in that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))
