"""Reading and writing ROS 2 bags without ROS."""

from __future__ import annotations

import heapq
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from rosbags.interfaces import Connection, Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime
from rosbags.interfaces.typing import Typesdict
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag_files import BagFiles
from alpamayo_ros.evaluation.bag_storage import RawMessage
from alpamayo_ros.evaluation.partial_folder import partial_folder, put_in_place
from alpamayo_ros.evaluation.ros_types import ros_types
from alpamayo_ros.evaluation.zstd import is_packed, unpacked

__all__ = ["BagMessage", "BagReader", "BagWriter", "RawMessage", "ros_types"]

STORAGES = {"mcap": StoragePlugin.MCAP, "sqlite3": StoragePlugin.SQLITE3}


@dataclass(frozen=True)
class BagMessage:
    """A message as it was received."""

    topic: str
    type: str  # "sensor_msgs/msg/Image"
    receive_ns: int
    message: Any  # a class that `rosbags` generated; fields as in the .msg file


class BagReader:
    """A bag: a folder as `ros2 bag record` leaves it, or a single .mcap or .db3 file; split and compressed ones too.

    A file that is damaged is read up to the damage, and `warnings` says so.

    Raises:
        ConfigurationError: there is no bag at `path`.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.warnings: list[str] = []
        self._files = BagFiles(self.path, self._warn)
        self._storages = self._files.storages
        contents = [storage.contents for storage in self._storages]
        self.topics: dict[str, str] = {}  # topic -> type, in alphabetical order
        for topic, kind in sorted(item for content in contents for item in content.topics.items()):
            self.topics[topic] = kind
        times = [(c.start_ns, c.end_ns) for c in contents if c.end_ns]
        self.start_ns = min((start for start, _ in times), default=0)  # receive time of the first message; 0 if none
        self.end_ns = max((end for _, end in times), default=0)
        self.latched = frozenset[str]().union(*(content.latched for content in contents))
        self._types: Typestore | None = None

    @property
    def duration(self) -> float:
        """Seconds from the first message to the last, by receive time."""
        return (self.end_ns - self.start_ns) * 1e-9

    def count(self, topic: str) -> int:
        """How many messages the topic has; 0 for a topic that the bag doesn't have."""
        return sum(storage.contents.counts.get(topic, 0) for storage in self._storages)

    def describe_topics(self) -> str:
        """The bag's topics in words, for messages to the user."""
        return ", ".join(f"{topic} ({kind}, {self.count(topic)})" for topic, kind in self.topics.items()) or "none"

    def messages(self, topics: Iterable[str] | None = None) -> Iterator[BagMessage]:
        """The messages of these topics (None: of all), in order of arrival.

        Messages that can't be deserialized are left out, and `warnings` says so.

        Raises:
            ConfigurationError: the bag doesn't have one of the topics, or nothing defines its type.
        """
        wanted = self._check(topics)
        known = self.types.fielddefs
        unknown = {topic: self.topics[topic] for topic in wanted if self.topics[topic] not in known}
        for topic, kind in unknown.items():
            text = f"{self.path}: topic {topic} has type {kind}, which neither the bag nor this package defines"
            if topics is not None:
                raise ConfigurationError(text)
            self._warn(f"{text}; it is left out")
        return self._deserialized(wanted - unknown.keys())

    def raw_messages(self, topics: Iterable[str] | None = None) -> Iterator[RawMessage]:
        """The same without deserialization, and for every type."""
        wanted = self._check(topics)
        merged = heapq.merge(*(s.messages(wanted) for s in self._storages), key=lambda message: message.receive_ns)
        return self._without_packing(merged)

    @property
    def types(self) -> Typestore:
        """The message types that `messages` deserializes: the bag's own definitions, and ours for the rest."""
        if self._types is None:
            own = ros_types()
            definitions = dict(own.fielddefs)
            for storage in self._storages:
                for name, (form, text) in storage.contents.definitions.items():
                    try:
                        definitions.update(_parse_definition(name, form, text))
                    except Exception as error:
                        self._warn(f"{self.path}: the bag's definition of {name} can't be parsed: {error}")
            self._types = own if definitions == own.fielddefs else _typestore(definitions)
        return self._types

    def close(self) -> None:
        """Free the files."""
        self._files.close()

    def __enter__(self) -> BagReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _check(self, topics: Iterable[str] | None) -> set[str]:
        wanted = set(self.topics if topics is None else topics)
        if missing := sorted(wanted - self.topics.keys()):
            raise ConfigurationError(
                f"{self.path} has no topic {', '.join(missing)}; its topics (type, messages) are: "
                f"{self.describe_topics()}"
            )
        return wanted

    def _without_packing(self, messages: Iterator[RawMessage]) -> Iterator[RawMessage]:
        """Messages that were packed one by one are unpacked; one that can't be is left out, and `warnings` says so."""
        for message in messages:
            if not is_packed(message.data):
                yield message
                continue
            try:
                data = unpacked(message.data)
            except Exception as error:
                self._warn(f"{self.path}: a message on {message.topic} can't be unpacked, and is left out: {error}")
                continue
            yield replace(message, data=data)

    def _deserialized(self, topics: set[str]) -> Iterator[BagMessage]:
        bad = dict.fromkeys(topics, 0)
        for raw in self.raw_messages(topics):
            try:
                message = self.types.deserialize_cdr(raw.data, raw.type)
            except Exception as error:  # damaged bytes raise whatever their reading runs into
                if not bad[raw.topic]:
                    self._warn(f"{self.path}: a {raw.type} on {raw.topic} can't be deserialized: {error!r}")
                bad[raw.topic] += 1
                continue
            yield BagMessage(raw.topic, raw.type, raw.receive_ns, message)
        for topic, count in bad.items():
            if count:
                self._warn(f"{self.path}: {count} messages on {topic} were left out, being damaged")


class BagWriter:
    """Writes a bag as a context manager: under a temporary name at first, so that a failure leaves nothing behind.

    `path` becomes a folder. An existing one is refused, or replaced if `overwrite` is set and it is a bag.

    Raises:
        ConfigurationError: the path is taken or can't be written, or the storage is unknown.
    """

    def __init__(
        self,
        path: str | Path,
        storage: str = "mcap",
        *,
        overwrite: bool = False,
        latched: Iterable[str] = ("/tf_static",),  # topics to be offered as transient local when the bag is played
    ) -> None:
        self.path = Path(path)
        if storage not in STORAGES:
            raise ConfigurationError(f"bag storage {storage!r}, expected one of {', '.join(STORAGES)}")
        is_bag = (self.path / "metadata.yaml").is_file()
        if os.path.lexists(self.path) and not (overwrite and is_bag):
            what = "exists" if is_bag or not overwrite else "exists and is no bag that could be overwritten"
            raise ConfigurationError(f"{self.path} {what}; remove it or choose another name")
        self._storage = STORAGES[storage]
        self._latched = frozenset(latched)
        self._connections: dict[str, Connection] = {}

    def __enter__(self) -> BagWriter:
        with self._files_of_its_own(), ExitStack() as stack:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._folder = stack.enter_context(partial_folder(self.path.parent, self.path.name))
            self._writer = Writer(self._folder / self.path.name, version=9, storage_plugin=self._storage)
            self._writer.open()
            self._stack = stack.pop_all()
        return self

    def write(self, topic: str, message: Any, receive_ns: int) -> None:
        """Append a message: an instance of one of `ros_types().types`.

        Raises:
            ConfigurationError: the topic carries another type, or the file can't be written.
        """
        kind = message.__msgtype__
        with self._files_of_its_own():
            data = ros_types().serialize_cdr(message, kind)
            if topic not in self._connections:
                self._connections[topic] = self._writer.add_connection(
                    topic, kind, typestore=ros_types(), offered_qos_profiles=[_qos(topic in self._latched)]
                )
            connection = self._connections[topic]
            if connection.msgtype != kind:
                raise ConfigurationError(f"topic {topic} of {self.path} carries {connection.msgtype}, not {kind}")
            self._writer.write(connection, receive_ns, data)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if error is not None:
                with suppress(Exception):  # of a full disk there is more than one; the first says it
                    self._writer.__exit__(kind, error, trace)
                return
            with self._files_of_its_own():
                self._writer.__exit__(None, None, None)
                put_in_place(self._folder / self.path.name, self.path)

    @contextmanager
    def _files_of_its_own(self) -> Iterator[None]:
        """What goes wrong with the bag's files becomes an error that names the bag."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"the bag {self.path} can't be written: {error}") from error
        except (struct.error, OverflowError) as error:
            raise ConfigurationError(
                f"the bag {self.path} can't be written: {error}; times in a bag go from 0 to 2038 (2^31 s)"
            ) from error


def _parse_definition(name: str, form: str, text: str) -> Typesdict:
    if form == "ros2msg":
        return dict(get_types_from_msg(text, name))
    separator = "=" * 80 + "\n"
    parts = text.split(separator) if text.startswith(separator) else [f"IDL: {name}\n{text}"]
    types: Typesdict = {}
    for part in filter(None, parts):
        types.update(get_types_from_idl(part.split("\n", 1)[1]))
    return types


def _typestore(definitions: Typesdict) -> Typestore:
    store = get_typestore(Stores.EMPTY)
    store.register(definitions)
    return store


def _qos(latched: bool) -> Qos:
    endless = QosTime(9223372036, 854775807)
    return Qos(
        history=QosHistory.KEEP_LAST,
        depth=10,
        reliability=QosReliability.RELIABLE,
        durability=QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
        deadline=endless,
        lifespan=endless,
        liveliness=QosLiveliness.AUTOMATIC,
        liveliness_lease_duration=endless,
        avoid_ros_namespace_conventions=False,
    )
