"""A thread that tells of ticks, so that the engine's thread can go on with the next one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from alpamayo_ros.ros.report import TickReport

logger = logging.getLogger(__name__)


class News:
    """Hands on what is told, one after the other.

    Args:
        tell: gets each. What it raises is logged, and the next goes out nevertheless.
    """

    def __init__(self, tell: Callable[[TickReport], None]) -> None:
        self._tell = tell
        self._waiting: SimpleQueue[TickReport | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="news", daemon=True)
        self._thread.start()

    def add(self, tick: TickReport) -> None:
        """There is news of a tick; returns at once."""
        self._waiting.put(tick)

    def stop(self, timeout: float) -> bool:
        """End the thread when all is told; False when that takes longer than `timeout` s. Idempotent."""
        self._waiting.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (tick := self._waiting.get()) is not None:
            try:
                self._tell(tick)
            except Exception:
                logger.exception("the status of a tick can't be published")
