"""What crosses between the node and its engine process: typed, versioned messages as bytes. Nothing here runs code.

A message is one line of JSON and, after it, the bytes of its arrays. In the JSON an object has one key, which says what
it is: a class of `TYPES` with its fields, a "map" with its pairs, an "array" with type, shape and place, or the "slot"
in shared memory where a frame's data lie. Floats are exact, NaN included; every sequence arrives as a tuple.

What can't be read concerns one request, where that is still told: it alone fails. Anything else that can't be read may
mean that the two sides are out of step, and nothing that follows can be relied on: the process is started anew.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from alpamayo_ros.core.types import EgoPose, EngineError, Frame, Observation, Prediction, SamplingOptions, Timings
from alpamayo_ros.engine.base import EngineInfo

VERSION = 2  # raised by every change that an older other side would misread
LONGEST = 1 << 28  # bytes of a message: an answer of 64 trajectories has 0.4 MB
LENGTH = struct.Struct("!i")  # before each message, as Connection.send_bytes writes it
LOOK = 0.1  # s


class WireError(EngineError):
    """Bytes that are no message of this version.

    Args:
        text: what is wrong.
        to: the class, by name, of the request that they are, or answer, as far as it can be told; else "".
    """

    def __init__(self, text: str, to: str = "") -> None:
        super().__init__(text)
        self.to = to


@dataclass(frozen=True)
class Slot:
    """Where a frame's bytes lie in the shared memory."""

    offset: int
    size: int  # bytes


# To the engine process


@dataclass(frozen=True)
class Load:
    """Make the engine. Answered with its EngineInfo, and whether it prepares frames alongside."""

    kind: str
    checkpoint: str
    options: Mapping[str, Any]  # of `create_engine`
    log_level: int


@dataclass(frozen=True)
class WarmUp:
    """Warm it up. Answered with nothing."""


@dataclass(frozen=True)
class NewMemory:
    """From now on, slots are in the shared memory whose descriptor follows. Not answered."""

    size: int  # bytes


@dataclass(frozen=True, eq=False)
class Prepare:
    """Decode and encode these frames early. Answered with nothing.

    If the engine prepares frames alongside, it may come while another request is under way. No two others do so.
    """

    frames: Sequence[Frame]


@dataclass(frozen=True, eq=False)
class Predict:
    """Predict these ticks. Answered with their predictions."""

    observations: Sequence[Observation]
    options: Sequence[SamplingOptions]


@dataclass(frozen=True, eq=False)
class Ask:
    """Answer a question. Answered with a text."""

    observation: Observation
    question: str
    options: SamplingOptions


# From the engine process


@dataclass(frozen=True)
class Hello:
    """It runs: the first message, before anything that takes long is imported."""

    python: str  # its version


@dataclass(frozen=True)
class Beat:
    """It lives."""


@dataclass(frozen=True)
class LogLine:
    """Something was logged there."""

    logger: str
    level: int
    text: str


@dataclass(frozen=True, eq=False)
class Answer:
    """A request was served."""

    value: Any = None
    engine_ms: float = 0.0  # inside the engine
    device_memory_bytes: int = 0  # that it holds now
    to: str = ""  # the request's class, by name


@dataclass(frozen=True)
class Failure:
    """A request could not be served."""

    error: str  # the exception's class, by name
    text: str
    serial: int | None = None  # of the frame that can't be decoded
    to: str = ""  # the request's class, by name; "": the process is of no use any more


REQUESTS = (Load, WarmUp, Prepare, Predict, Ask)
TYPES: Mapping[str, type] = {
    each.__name__: each
    for each in (
        *(*REQUESTS, NewMemory),
        *(Hello, Beat, LogLine, Answer, Failure),
        *(EgoPose, EngineInfo, Frame, Observation, Prediction, SamplingOptions, Timings),
    )
}
OUT_OF_STEP = "the node and its engine process are out of step"
NUMBERS = "biuf"  # kinds of NumPy types that may cross


def receive_bytes(connection: Connection, patience: float | None = None) -> bytes:
    """The next message's bytes.

    Args:
        connection: to the other side.
        patience: s that each part of a message, its length and what follows, may take; None: for ever.

    Raises:
        WireError: what comes is no message, or its rest doesn't come.
        EOFError, OSError: the other side is gone.
    """
    (size,) = LENGTH.unpack(_exactly(connection, LENGTH.size, patience))
    if not 0 <= size <= LONGEST:  # -1 begins one of more than 2 GiB
        raise WireError(f"a message is said to have more than {LONGEST} bytes; {OUT_OF_STEP}")
    return _exactly(connection, size, patience)


def _exactly(connection: Connection, size: int, patience: float | None) -> bytes:
    found, waited = bytearray(), 0.0
    while len(found) < size:
        started = time.monotonic()
        if not connection.poll(None if patience is None else LOOK):
            waited += min(time.monotonic() - started, LOOK)  # counted: this process may have been stopped as well
            if patience is not None and waited > patience:
                raise WireError(
                    f"of a message's {size} bytes only {len(found)} have come after {waited:.0f} s; {OUT_OF_STEP}"
                )
            continue
        part = os.read(connection.fileno(), size - len(found))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def encode(message: Any, slots: Mapping[int, Slot] | None = None) -> bytes:
    """A message as bytes.

    Args:
        message: of one of TYPES.
        slots: for every frame in it, by serial: where its data lie.

    Raises:
        WireError: something in it can't cross.
    """
    arrays: list[bytes] = []
    plain = _Plain(slots or {}, arrays).of(message)
    return b"".join([json.dumps([VERSION, plain], separators=(",", ":")).encode(), b"\n", *arrays])


def decode(data: bytes, lend: Callable[[Slot], memoryview] | None = None) -> Any:
    """The message in these bytes.

    Args:
        data: as `encode` gave them.
        lend: gives the bytes in a slot of the shared memory.

    Raises:
        WireError: they are none of this version.
    """
    line, _, arrays = data.partition(b"\n")
    try:
        version, plain = json.loads(line)
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"what comes is no message: {error}: {line[:80]!r}; {OUT_OF_STEP}") from error
    if version != VERSION:
        raise WireError(
            f"the engine process speaks version {version} of the protocol, and this is version {VERSION}; "
            "was alpamayo_ros changed while the node ran? Start it again",
            _request(plain),
        )
    try:
        return _Objects(arrays, lend).of(plain)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        text = f"a message of the engine process has a wrong form: {type(error).__name__}: {error}"
        raise WireError(text, _request(plain)) from error


def _request(plain: Any) -> str:
    """The class's name of the request that a message whose content can't be read is, or answers; "": not known."""
    if not isinstance(plain, dict) or len(plain) != 1:
        return ""
    ((name, content),) = plain.items()
    if name in (Answer.__name__, Failure.__name__) and isinstance(content, dict):
        name = content.get("to")
    return name if name in (each.__name__ for each in REQUESTS) else ""


class _Plain:
    """Objects to what JSON knows."""

    def __init__(self, slots: Mapping[int, Slot], arrays: list[bytes]) -> None:
        self._slots = slots
        self._arrays = arrays
        self._end = 0

    def of(self, value: Any) -> Any:
        kind = type(value)
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if TYPES.get(kind.__name__) is kind:
            return {kind.__name__: self._fields(value)}
        if isinstance(value, np.ndarray):
            return {"array": self._array(value)}
        if isinstance(value, np.bool_ | np.integer | np.floating):
            return value.item()
        if isinstance(value, Mapping):
            return {"map": [[self.of(key), self.of(each)] for key, each in value.items()]}
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
            return [self.of(each) for each in value]
        raise WireError(f"a {kind.__name__} can't cross to or from the engine process")

    def _fields(self, value: Any) -> Any:
        if isinstance(value, Frame):
            slot = self._slots[value.serial]
            return [self._plain({**vars(value), "data": None}), slot.offset, slot.size]
        return self._plain(vars(value))

    def _plain(self, content: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.of(each) for name, each in content.items()}

    def _array(self, array: np.ndarray[Any, Any]) -> list[Any]:
        if array.dtype.kind not in NUMBERS:
            raise WireError(f"an array of {array.dtype} can't cross to or from the engine process")
        self._arrays.append(array.tobytes())
        start, self._end = self._end, self._end + array.nbytes
        return [array.dtype.str, list(array.shape), start]


class _Objects:
    """What JSON knows to objects."""

    def __init__(self, arrays: bytes, lend: Callable[[Slot], memoryview] | None) -> None:
        self._arrays = arrays
        self._lend = lend

    def of(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return tuple(self.of(each) for each in plain)
        if not isinstance(plain, dict):
            return plain
        ((name, content),) = plain.items()
        if name == "array":
            return self._array(*content)
        if name == "map":
            return {self.of(key): self.of(value) for key, value in content}
        if name == "Frame":
            return self._frame(*content)
        return TYPES[name](**{key: self.of(value) for key, value in content.items()})

    def _array(self, dtype: str, shape: list[int], start: int) -> np.ndarray[Any, Any]:
        kind = np.dtype(dtype)
        if kind.kind not in NUMBERS:
            raise ValueError(f"an array of {kind}")
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._arrays, kind, count, start).reshape(shape).copy()

    def _frame(self, content: dict[str, Any], offset: int, size: int) -> Frame:
        if self._lend is None:
            raise ValueError("a frame, where none can be")
        return Frame(**{**content, "data": self._lend(Slot(offset, size))})
