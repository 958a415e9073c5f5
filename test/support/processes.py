"""Calls in the background, and processes that should be gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psutil


def in_background(call: Callable[[], Any]) -> Future[Any]:
    """The result to come of a call in another thread."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def is_gone(pid: int) -> bool:
    """Whether that process has ended."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], Any], timeout: float = 30.0) -> float:
    """Wait for something; returns how long it took, s."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout, "waited in vain"
        time.sleep(0.005)
    return time.monotonic() - started
