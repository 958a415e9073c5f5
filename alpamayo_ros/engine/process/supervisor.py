"""Keeps one engine process alive: loads it, watches it, and starts it anew when it dies or hangs."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future

from alpamayo_ros.core.types import (
    AlpamayoError,
    EngineError,
    EngineNotReadyError,
    Frame,
)
from alpamayo_ros.engine.base import EngineHealth, EngineInfo
from alpamayo_ros.engine.process.child import EngineProcess, ProcessEndedError
from alpamayo_ros.engine.process.request import SILENT, Request, exception_of
from alpamayo_ros.engine.process.ring import FrameMemory, Ring
from alpamayo_ros.engine.process.wire import (
    Answer,
    Failure,
    Load,
    LogLine,
    NewMemory,
    Prepare,
    WarmUp,
    WireError,
    encode,
)

logger = logging.getLogger(__name__)

RESTART_DELAYS = (0.0, 1.0, 2.0, 5.0, 10.0)  # s before each attempt; after the last one it is given up
STABLE = 60.0  # s that it must have run for the attempts to be counted anew
POLL = 0.1  # s
STOPPED = 1.0  # s of silence from a process that is suspended


class Supervisor:
    """One engine process after the other, as one.

    One thread does all: it starts the process (the kernel kills it with that thread), reads what it says, and ends it.

    Args:
        load: the engine to make.
        python: the interpreter of the process; "": the one that runs this.
        cameras: at most; sizes the shared memory.

    Raises:
        ConfigurationError, EngineError: as in the process; or it can't be started.
    """

    def __init__(self, load: Load, python: str, cameras: int) -> None:
        self._load = load
        self._python = python
        self._memory = FrameMemory(cameras)
        self._turn, self._alongside = threading.Lock(), threading.Lock()  # each held for one request
        self._sending = threading.Lock()  # of the memory; a request is sent in the memory that its frames were put into
        self._lock = threading.Condition()  # of all below
        self._process: EngineProcess | None = None  # None while there is none that is ready
        self._shared: Ring | None = None  # the memory that it knows
        self._requests: dict[str, Request] = {}  # those that it is at, by their class
        self._state = "loading"
        self._restarts = 0
        self._device_memory_bytes = 0
        self._warm = self._given_up = self._closed = False
        self._loaded: Future[tuple[EngineInfo, bool]] = Future()  # the first time
        self._silence = 0.0  # s
        self._ready_since = math.inf  # monotonic s
        self._thread = threading.Thread(target=self._run, name="engine process", daemon=True)
        self._thread.start()
        try:
            self.info, self.prepares_alongside = self._loaded.result()
        except BaseException:
            self.close()
            raise

    @property
    def health(self) -> EngineHealth:
        """How it is now."""
        with self._lock:
            state = self._state
            if self._process is None:
                for request in self._requests.values():
                    state += f": {request.doing} for {time.monotonic() - request.started:.0f} s"
            return EngineHealth(
                ready=self._process is not None,
                state=state,
                restarts=self._restarts,
                pid=self._process.pid if self._process else 0,
                device_memory_bytes=self._device_memory_bytes,
            )

    def warm_up(self) -> None:
        """Warm the engine up, now and after every restart."""
        self.request(WarmUp())
        self._warm = True

    def request(self, message: object, frames: Sequence[Frame] = (), limit: float = math.inf) -> Answer:
        """Ask the process for something.

        Args:
            message: the request, of one of REQUESTS.
            frames: all that are in it.
            limit: s that it may take; then the process is ended and started anew.

        Raises:
            EngineNotReadyError: it is being started anew.
            ProcessEndedError: it died or hung over this.
            AlpamayoError: what was raised there.
        """
        alongside = self.prepares_alongside and isinstance(message, Prepare)
        with self._alongside if alongside else self._turn:
            try:
                return self._send(message, frames, limit).answer.result()
            except (KeyboardInterrupt, SystemExit):  # nobody waits for the answer any more
                self.close()
                raise

    def wait_until_ready(self) -> None:
        """Return when a restart is over, for better or worse."""
        with self._lock:
            self._lock.wait_for(lambda: self._process is not None or self._given_up or self._closed)

    def close(self) -> None:
        """End the process, at work or not. Returns when it is gone. Idempotent."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        self._thread.join()
        with self._sending:
            self._memory.close()

    def _send(self, message: object, frames: Sequence[Frame], limit: float) -> Request:
        with self._sending:
            with self._lock:
                self._check_ready()
                others = frozenset[int]().union(*(each.frames for each in self._requests.values()))
            slots = self._memory.place(frames, others)
            data = encode(message, slots)
            request = Request(type(message), frozenset(slots), limit)
            process, must_share = self._begin(request)
            with contextlib.suppress(OSError):  # it has just died; the thread will say how
                if must_share:
                    process.send(encode(NewMemory(self._memory.ring.size)))
                    process.send_descriptor(self._memory.ring.descriptor)
                process.send(data)
            return request

    def _begin(self, request: Request) -> tuple[EngineProcess, bool]:
        """Note what is asked; returns who is asked, and whether he has yet to be given the memory."""
        with self._lock:
            process = self._check_ready()
            self._requests[request.kind.__name__] = request
            shared, self._shared = self._shared, self._memory.ring
            return process, shared is not self._memory.ring

    def _check_ready(self) -> EngineProcess:
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            if self._process is None:
                raise EngineNotReadyError(self.health.state)
            return self._process

    # In the thread

    def _run(self) -> None:
        attempt = 0  # to start it anew
        while True:
            self._ready_since = math.inf
            error = self._live_once(attempt)
            if not self._loaded.done():
                self._loaded.set_exception(error)
                return
            if time.monotonic() - self._ready_since > STABLE:
                attempt = 0
            if self._closed:
                return
            if attempt == len(RESTART_DELAYS):
                self._give_up(error)
                return
            attempt += 1
            logger.error("%s; starting it anew, attempt %d of %d", error, attempt, len(RESTART_DELAYS))
            self._say(f"{error}; starting it anew, attempt {attempt} of {len(RESTART_DELAYS)}")
            with self._lock:
                if self._lock.wait_for(lambda: self._closed, RESTART_DELAYS[attempt - 1]):
                    return
                self._restarts += 1

    def _live_once(self, attempt: int) -> AlpamayoError:
        """Start a process, and watch it until it ends; returns why it did."""
        process, started = None, time.monotonic()
        try:
            process = EngineProcess(self._python)
            self._silence = 0.0
            info, prepares_alongside = self._ask(process, self._load).value
            if self._warm:
                self._ask(process, WarmUp())
            with self._lock:
                self.info, self.prepares_alongside = info, prepares_alongside
                self._process, self._shared, self._state = process, None, "ready"
                self._ready_since = time.monotonic()
                self._lock.notify_all()
            if attempt:
                logger.warning("the engine process is back after %.1f s", time.monotonic() - started)
            else:
                self._loaded.set_result((info, prepares_alongside))
            while True:
                self._read(process)
        except Exception as error:
            if not isinstance(error, AlpamayoError):
                logger.exception("watching the engine process failed")
                error = ProcessEndedError(f"watching the engine process failed: {type(error).__name__}: {error}")
            self._put_away(process, error)
            return error

    def _ask(self, process: EngineProcess, message: object) -> Answer:
        """Ask a process that isn't ready yet."""
        request = Request(type(message))
        with self._lock:
            self._requests[request.kind.__name__] = request
        with contextlib.suppress(OSError):
            process.send(encode(message))
        while not request.answer.done():
            self._read(process)
        return request.answer.result()

    def _read(self, process: EngineProcess) -> None:
        """Take its next message, and see whether it lives.

        Raises:
            AlpamayoError: it doesn't, or shall not.
        """
        if self._closed:
            raise ProcessEndedError("the engine was closed")
        message = process.receive(POLL)
        # counted, not measured: this process may have been stopped as well
        self._silence = self._silence + POLL if message is None else 0.0
        if isinstance(message, Answer | Failure):
            self._answer(message)
        elif isinstance(message, LogLine):
            _log(message)
        self._check(process)

    def _answer(self, message: Answer | Failure) -> None:
        if isinstance(message, Failure) and not message.to:
            raise exception_of(message)
        with self._lock:
            request = self._requests.pop(message.to, None)
            if isinstance(message, Answer):
                self._device_memory_bytes = message.device_memory_bytes
        if request is None:
            raise WireError(f"the engine process answered though nothing was asked: {message}")
        if isinstance(message, Answer):
            request.answer.set_result(message)
        else:
            request.answer.set_exception(exception_of(message))

    def _check(self, process: EngineProcess) -> None:
        name = f"the engine process {process.pid}"
        with self._lock:
            requests = list(self._requests.values())
        if self._silence > STOPPED and process.is_stopped:
            raise ProcessEndedError(f"{name} was suspended (SIGSTOP)")
        allowed = max((request.silence for request in requests), default=SILENT)
        if self._silence > allowed:
            raise ProcessEndedError(f"{name} has given no sign of life for {allowed:g} s")
        for request in requests:
            if time.monotonic() - request.started > request.limit:
                raise ProcessEndedError(f"{name} hangs: it is not done after {request.limit:g} s (engine.hang_timeout)")

    def _put_away(self, process: EngineProcess | None, error: AlpamayoError) -> None:
        """A process has ended, or shall."""
        with self._lock:
            self._process = None
            self._state = str(error)
            self._device_memory_bytes = 0
            requests, self._requests = list(self._requests.values()), {}
        for request in requests:
            request.answer.set_exception(ProcessEndedError(f"{error}, while {request.doing}"))
        if process is not None:
            process.end(grace=self._closed and not requests)

    def _give_up(self, error: AlpamayoError) -> None:
        text = f"{error}; given up after {len(RESTART_DELAYS)} attempts: clean the node up and configure it again"
        logger.error("%s", text)
        self._say(text)
        with self._lock:
            self._given_up = True
            self._lock.notify_all()

    def _say(self, state: str) -> None:
        with self._lock:
            self._state = state


def _log(line: LogLine) -> None:
    target = logging.getLogger(line.logger)
    if target.isEnabledFor(line.level):
        target.handle(logging.LogRecord(line.logger, line.level, "engine process", 0, line.text, None, None))
