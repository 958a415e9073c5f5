"""The engine process: holds one engine and serves the node's requests until the node is gone.

One after the other, in the main thread; frames are prepared in a thread of their own, if the engine can do that beside
its other work.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from queue import SimpleQueue
from typing import Any, NoReturn

from alpamayo_ros.core.types import AlpamayoError, EngineError
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.device_memory import device_memory_bytes
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.process.ring import LentMemory, Loan
from alpamayo_ros.engine.process.wire import (
    Answer,
    Ask,
    Beat,
    Failure,
    Load,
    LogLine,
    NewMemory,
    Predict,
    Prepare,
    WarmUp,
    WireError,
    decode,
    encode,
    receive_bytes,
)

logger = logging.getLogger(__name__)

BEAT = 0.25  # s between two signs of life


def serve(connection: Connection) -> NoReturn:
    """Serve until the other end of the connection is closed; then the process ends."""
    faulthandler.enable()
    for number in (signal.SIGINT, signal.SIGTERM):  # they may come to all processes; only the node may end this one
        signal.signal(number, lambda _number, _frame: None)
    port = Port(connection)
    logging.getLogger().addHandler(LogForwarder(port))
    threading.Thread(target=_beat, args=(port,), name="heart", daemon=True).start()
    server = Server(port)
    server.run()
    server.close()
    _end()


class Port:
    """Sends messages, from any thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, message: object) -> None:
        """Send one message; OSError when nobody will read it."""
        data = encode(message)
        with self._lock:
            self.connection.send_bytes(data)


class LogForwarder(logging.Handler):
    """Hands log records to the node."""

    def __init__(self, port: Port) -> None:
        super().__init__()
        self._port = port

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record; an exception's traceback becomes part of its text."""
        try:
            self._port.send(LogLine(record.name, record.levelno, self.format(record)))
        except Exception:
            self.handleError(record)


@dataclass(frozen=True, eq=False)
class _Request:
    message: object
    loan: Loan | None  # of the frames in it


class Server:
    """The requests, and the engine that serves them."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._engine: Engine | None = None
        self._memory: LentMemory | None = None
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()  # None: no more will come
        self._frames: SimpleQueue[_Request | None] = SimpleQueue()  # to prepare alongside

    def run(self) -> None:
        """Serve until the other end is closed."""
        preparing = threading.Thread(target=self._serve_all, args=(self._frames,), name="prepare", daemon=True)
        preparing.start()
        threading.Thread(target=self._read, name="reader", daemon=True).start()
        self._serve_all(self._requests)
        preparing.join()

    def close(self) -> None:
        """Free the engine."""
        if self._engine is not None:
            self._engine.close()

    def _read(self) -> None:
        """Take requests, until the other end is closed."""
        try:
            with contextlib.suppress(EOFError, OSError):
                while self._take():
                    pass
        finally:  # also when this thread fails: the process ends then, which the node notices
            for queue in (self._requests, self._frames):
                queue.put(None)

    def _take(self) -> bool:
        """Take the next request; False when no further one can be taken."""
        loan = None if self._memory is None else Loan(self._memory)
        try:
            message = decode(receive_bytes(self._port.connection), None if loan is None else loan.lend)
        except WireError as error:
            self._port.send(Failure(EngineError.__name__, str(error), to=error.to))
            return bool(error.to)
        if isinstance(message, NewMemory):
            self._memory = LentMemory(recv_handle(self._port.connection), message.size)
            return True
        alongside = isinstance(message, Prepare) and self._engine is not None and self._engine.prepares_alongside
        (self._frames if alongside else self._requests).put(_Request(message, loan))
        return True

    def _serve_all(self, requests: SimpleQueue[_Request | None]) -> None:
        while (request := requests.get()) is not None:
            answer = self._answer(request)
            try:
                self._send(answer)
            except OSError:  # nobody will read it; the reader has noticed, too
                return

    def _send(self, answer: Answer | Failure) -> None:
        try:
            self._port.send(answer)
        except WireError as error:  # the engine's answer is of no kind that can be
            self._port.send(Failure(EngineError.__name__, str(error), to=answer.to))

    def _answer(self, request: _Request) -> Answer | Failure:
        answer = self._attempt(request.message)
        if request.loan is not None:  # here, when no traceback holds the frames any more
            try:
                request.loan.take_back()
            except EngineError as error:
                return Failure(EngineError.__name__, str(error), to=answer.to)
        return answer

    def _attempt(self, message: object) -> Answer | Failure:
        name = type(message).__name__
        try:
            return self._serve(message)
        except AlpamayoError as error:
            return Failure(type(error).__name__, str(error), getattr(error, "serial", None), name)
        except Exception as error:  # a fault of the engine; the node knows it by its text
            logger.exception("the engine failed")
            return Failure(EngineError.__name__, f"{type(error).__name__}: {error}", to=name)

    def _serve(self, message: object) -> Answer:
        started = time.monotonic()
        value = self._load(message) if isinstance(message, Load) else self._ask_engine(message)
        engine_ms = (time.monotonic() - started) * 1e3
        device = "" if self._engine is None else self._engine.info.device
        return Answer(value, engine_ms, device_memory_bytes(device), type(message).__name__)

    def _load(self, load: Load) -> Any:
        logging.getLogger().setLevel(load.log_level)
        started = time.monotonic()
        self._engine = create_engine(load.kind, load.checkpoint, **{**load.options, "process": "in_process"})
        seconds = time.monotonic() - started
        logger.info("process %d, %s, loaded the engine in %.1f s", os.getpid(), sys.executable, seconds)
        return self._engine.info, self._engine.prepares_alongside

    def _warm_up(self, engine: Engine) -> None:
        started = time.monotonic()
        engine.warm_up()
        logger.info("process %d warmed up the engine in %.1f s", os.getpid(), time.monotonic() - started)

    def _ask_engine(self, message: object) -> Any:
        engine = self._engine
        if engine is None:
            raise EngineError(f"{type(message).__name__} came before the engine was loaded")
        if isinstance(message, WarmUp):
            return self._warm_up(engine)
        if isinstance(message, Prepare):
            return engine.prepare(message.frames)
        if isinstance(message, Predict):
            if len(message.observations) == 1:
                return [engine.predict(message.observations[0], message.options[0])]
            return engine.predict_batch(message.observations, message.options)
        if isinstance(message, Ask):
            return engine.ask(message.observation, message.question, message.options)
        raise EngineError(f"{type(message).__name__} is no request")


def _beat(port: Port) -> None:
    while True:
        try:
            port.send(Beat())
        except OSError:
            _end()
        time.sleep(BEAT)


def _end() -> NoReturn:
    """End at once, with all processes that the engine has started."""
    if os.getpgrp() == os.getpid():  # the node has made this process the head of a group of its own
        os.killpg(0, signal.SIGKILL)
    os._exit(0)
