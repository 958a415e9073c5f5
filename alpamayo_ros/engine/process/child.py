"""One engine process as the node sees it: started, spoken to, watched, ended."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import ConfigurationError, EngineError
from alpamayo_ros.engine.process.wire import Failure, WireError, decode, receive_bytes

logger = logging.getLogger(__name__)

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
LAST_WORDS = 1.0  # s for a process to be gone that has closed its end
GRACE = 2.0  # s for an idle one to free its engine
REST = 5.0  # s that the rest of a message may take that has begun
DYING = 10.0  # s that a killed one may take to be gone


class ProcessEndedError(EngineError):
    """The engine process is gone, or no longer of use; the message says how that came."""


class EngineProcess:
    """A process that runs `server.py`.

    To be made in a thread that lives as long as it shall: the kernel kills it with that thread.

    Args:
        python: its interpreter; "": the one that runs this.

    Raises:
        ConfigurationError: it can't be started.
    """

    def __init__(self, python: str) -> None:
        ours, theirs = socket.socketpair()
        command = [python or sys.executable, "-u", str(BOOTSTRAP), str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(python),
                start_new_session=True,  # Ctrl-C is not for it, and it can be ended with all that it started
            )
        except OSError as error:
            ours.close()
            raise ConfigurationError(
                f"engine.python is {python!r}, which can't be started: {error.strerror}; it has to be the path of a "
                "Python interpreter, 3.10 or newer, with the engine's packages"
            ) from error
        finally:
            theirs.close()
        self._python = command[0]
        self._connection: Connection = Connection(ours.detach())
        self._sending = threading.Lock()
        self.spoke = False  # whether it has said anything yet

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_stopped(self) -> bool:
        """Whether it was suspended from outside, as by SIGSTOP."""
        return self._news(os.WSTOPPED) is not None

    def send(self, data: bytes) -> None:
        """Send an encoded message; OSError when it is gone."""
        with self._sending:
            self._connection.send_bytes(data)

    def send_descriptor(self, descriptor: int) -> None:
        """Send what NewMemory announces; OSError when it is gone."""
        with self._sending:
            send_handle(self._connection, descriptor, self.pid)

    def receive(self, timeout: float) -> Any:
        """Its next message; None when there is none for `timeout` s.

        One that can't be read, but is about some request, is the Failure of that.

        Raises:
            ProcessEndedError: it is gone; the message says how.
            WireError: what it says can't be read, and may be about anything.
        """
        try:
            if not self._connection.poll(timeout):
                return None
            data = receive_bytes(self._connection, REST)
        except WireError as error:
            if self.is_stopped:
                raise ProcessEndedError(f"the engine process {self.pid} was suspended (SIGSTOP)") from error
            raise
        except (EOFError, OSError) as error:
            raise ProcessEndedError(self._last_words()) from error
        self.spoke = True
        try:
            return decode(data)
        except WireError as error:
            if not error.to:
                raise
            return Failure(EngineError.__name__, str(error), to=error.to)

    def end(self, grace: bool = False) -> None:
        """End it, with all that it started; returns when it is gone.

        Args:
            grace: let it free its engine first. One that is at work can't.
        """
        if grace:
            self._hang_up()
            self._wait_for_exit(GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        try:
            self._process.wait(DYING)
        except subprocess.TimeoutExpired:  # inside a driver that hangs
            logger.error("the engine process %d was killed, and is not gone after %g s", self.pid, DYING)
        with self._sending:  # what was being sent has failed by now
            self._connection.close()

    def _hang_up(self) -> None:
        end = socket.socket(fileno=os.dup(self._connection.fileno()))
        with end, contextlib.suppress(OSError):  # it may have hung up before
            end.shutdown(socket.SHUT_WR)

    def _last_words(self) -> str:
        """How it ended, for the one who reads it."""
        ended = self._wait_for_exit(LAST_WORDS)
        name = f"the engine process {self.pid}"
        if ended is None:
            return f"{name} has closed its connection"
        if ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
            killer = signal.Signals(ended.si_status)
            hint = ", as the kernel does when memory runs out" if killer is signal.SIGKILL else ""
            return f"{name} was killed by {killer.name}{hint}"
        said = f"{name} ended with exit code {ended.si_status}"
        if self.spoke:
            return f"{said}; what it wrote to stderr says why"
        return f"{said} before it said anything; is {self._python!r} (engine.python) a Python, 3.10 or newer?"

    def _wait_for_exit(self, timeout: float) -> os.waitid_result | None:
        """How it ended, without reaping it, so that its id stays its own; None when it still runs."""
        deadline = time.monotonic() + timeout
        while (ended := self._news(os.WEXITED)) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return ended

    def _news(self, of: int) -> os.waitid_result | None:
        """What the kernel has to tell of it, of that kind."""
        try:
            return os.waitid(os.P_PID, self.pid, of | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else in the node's process has waited for it
            return None


def _environment(python: str) -> dict[str, str]:
    """This process's, without what leads another interpreter to this one's packages."""
    foreign = ("PYTHONPATH", "PYTHONHOME") if python else ()
    return {name: value for name, value in os.environ.items() if name not in foreign}
