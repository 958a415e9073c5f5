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
        begin: What it does first; what that raises is raised here.
    """

    def __init__(self, name: str, begin: Callable[[], None]) -> None:
        self._waiting: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._closed = False
        self._asking = threading.Lock()  # so that nothing is asked for behind the end
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()
        try:
            self.run(begin)
        except BaseException:
            self.close()
            raise

    def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Have this done, and wait for its result; what it raises is raised here.

        Raises:
            RuntimeError: the thread has been closed.
        """
        result: Future[Result] = Future()
        with self._asking:
            if self._closed:
                raise RuntimeError(f"the thread {self._thread.name!r} is closed; nothing can be asked of it any more")
            self._waiting.put((lambda: work(*arguments), result))
        try:
            return result.result()
        finally:
            del result  # it holds what was raised, and that this frame: what failed would be held until a collection

    def close(self) -> None:
        """Wait until what was asked for is done, and end the thread."""
        with self._asking:
            self._closed = True
            self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (asked := self._waiting.get()) is not None:
            work, result = asked
            try:
                result.set_result(work())
            except BaseException as error:
                result.set_exception(error)
            del asked, work, result  # and what they hold, while nothing is asked for
