"""An event that SIGINT, SIGTERM and SIGHUP set, for programs that end in order."""

from __future__ import annotations

import os
import signal
import threading

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stop_on_signals() -> threading.Event:
    """The event. A SIGHUP that is ignored (nohup) stays so. To be called from the main thread, once in a process.

    No Python handler sets it. That would run in the main thread only, which may have gone to sleep in the event's
    wait() just when the signal came and not wake up for it, or hold the event's own lock. The C handler writes the
    signal's number to a pipe (signal.set_wakeup_fd), and a thread that reads there sets the event.
    """
    stop = threading.Event()
    came, tell = os.pipe()
    os.set_blocking(tell, False)

    def forward() -> None:
        while os.read(came, 1)[0] not in NUMBERS:
            pass
        stop.set()

    threading.Thread(target=forward, name="signals", daemon=True).start()
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in NUMBERS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
    return stop
