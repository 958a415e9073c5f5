"""Signals that end a program, and the moments in which they have to wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, kill, a terminal that was closed

_blocks = 0  # how many `uninterrupted` blocks the main thread is in
_waiting: list[int] = []  # signals that came meanwhile


class Interrupted(KeyboardInterrupt):
    """A signal asks the program to end; `status` is the exit code that shells give it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


def raise_on_signals() -> None:
    """From now on the signals raise Interrupted in the main thread; those that are ignored (nohup) stay so."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that come in this block of the main thread raise Interrupted at its end. Keep it short."""
    global _blocks
    _blocks += 1
    try:
        yield
    finally:
        _blocks -= 1
        if _waiting and not _blocks:
            number = _waiting[0]
            _waiting.clear()
            raise Interrupted(number)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    if _blocks:
        _waiting.append(number)
    else:
        raise Interrupted(number)
