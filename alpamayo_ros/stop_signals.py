"""An event that SIGINT, SIGTERM and SIGHUP set, for programs that end in order."""

from __future__ import annotations

import os
import signal
import threading


def stop_on_signals() -> threading.Event:
    """The event. A SIGHUP that is ignored (nohup) stays so. To be called from the main thread.

    The handler doesn't set the event itself: it runs in the main thread, perhaps while that is inside the event's own
    wait() and holds its lock, which would block for ever. A thread does that for it.
    """
    stop = threading.Event()
    came, tell = os.pipe()

    def forward() -> None:
        os.read(came, 1)
        stop.set()

    threading.Thread(target=forward, name="signals", daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: _write(tell))
    return stop


def _write(descriptor: int) -> None:
    os.write(descriptor, b"\0")
