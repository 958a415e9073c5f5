"""A thread that does all of an engine's work, one piece after the other, whoever asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

Result = TypeVar("Result")


class OwnThread:
    """Unlike an executor's, it doesn't hold up the process's end: work that a device never finishes is left behind.

    Args:
        name: The thread's.
        begin: What it does first.
    """

    def __init__(self, name: str, begin: Callable[[], None]) -> None:
        self._waiting: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, args=(begin,), name=name, daemon=True)
        self._thread.start()

    def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Have this done, and wait for its result; what it raises is raised here."""
        result: Future[Result] = Future()
        self._waiting.put((lambda: work(*arguments), result))
        return result.result()

    def close(self) -> None:
        """Wait until what was asked for is done, and end the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _serve(self, begin: Callable[[], None]) -> None:
        fault: BaseException | None = None
        try:
            begin()
        except BaseException as error:  # who asks for something is told
            fault = error
        while (asked := self._waiting.get()) is not None:
            work, result = asked
            try:
                if fault is not None:
                    raise fault
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)
            del asked, work, result  # and what they hold, while nothing is asked for
