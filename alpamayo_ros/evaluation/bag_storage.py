"""The files of a bag: one interface for intact ones, read by `rosbags`, and for damaged ones, read up to the damage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rosbags.interfaces import MessageDefinitionFormat, QosDurability
from rosbags.rosbag2 import Reader

CDR = "cdr"


@dataclass(frozen=True)
class RawMessage:
    """A message as it was received: CDR bytes with their encapsulation header."""

    topic: str
    type: str  # "sensor_msgs/msg/Image"
    receive_ns: int
    data: bytes


@dataclass(frozen=True)
class Contents:
    """What a file holds."""

    topics: dict[str, str] = field(default_factory=dict)  # topic -> type
    counts: dict[str, int] = field(default_factory=dict)  # topic -> messages
    definitions: dict[str, tuple[str, str]] = field(default_factory=dict)  # type -> ("ros2msg" | "ros2idl", text)
    latched: frozenset[str] = frozenset()  # topics that were offered as transient local
    start_ns: int = 0  # receive times of the first and the last message; 0 when there is none
    end_ns: int = 0


class Storage(Protocol):
    """A readable file."""

    contents: Contents

    def messages(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The messages of these topics by receive time."""

    def close(self) -> None:
        """Free the file."""


class IntactStorage:
    """A file that `rosbags` can read.

    Raises:
        Exception: of any kind: what `rosbags` meets in damaged data isn't all translated into errors of its own.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._reader = Reader(path)
        try:
            self._reader.open()
            self.contents = self._contents()
        except BaseException:
            if self._reader.is_open:
                self._reader.close()
            raise

    def _contents(self) -> Contents:
        reader = self._reader
        formats = {MessageDefinitionFormat.MSG: "ros2msg", MessageDefinitionFormat.IDL: "ros2idl"}
        connections = [c for c in reader.connections if getattr(c.ext, "serialization_format", CDR) == CDR]
        contents = Contents(
            latched=frozenset(
                c.topic
                for c in connections
                if any(
                    q.durability is QosDurability.TRANSIENT_LOCAL for q in getattr(c.ext, "offered_qos_profiles", [])
                )
            ),
            start_ns=reader.start_time if reader.message_count else 0,
            end_ns=reader.end_time - 1 if reader.message_count else 0,
        )
        if not (isinstance(contents.start_ns, int) and isinstance(contents.end_ns, int)):
            raise ValueError(f"its receive times are {contents.start_ns!r} to {contents.end_ns!r}, expected ns")
        for connection in connections:
            contents.topics[connection.topic] = connection.msgtype
            contents.counts[connection.topic] = contents.counts.get(connection.topic, 0) + connection.msgcount
            if connection.msgdef.format in formats:
                contents.definitions[connection.msgtype] = (
                    formats[connection.msgdef.format],
                    connection.msgdef.data,
                )
        return contents

    def messages(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The messages of these topics by receive time; ends with a warning where the data turn out damaged."""
        connections = [c for c in self._reader.connections if c.topic in topics]
        if not connections:
            return
        messages = self._reader.messages(connections)
        last_ns = None
        while True:
            try:
                connection, receive_ns, data = next(messages)
                message = RawMessage(connection.topic, connection.msgtype, int(receive_ns), bytes(data))
            except StopIteration:
                return
            except Exception as error:
                read = "nothing" if last_ns is None else f"messages up to receive time {last_ns} ns"
                self._warn(f"{self._path} is damaged ({error}); {read} could be read")
                return
            last_ns = receive_ns
            yield message

    def close(self) -> None:
        """Free the file."""
        with suppress(Exception):
            self._reader.close()
