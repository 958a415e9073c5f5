"""Bag files that were cut short, read from their beginning to the damage.

A recorder that is killed leaves an MCAP file without an index, or an SQLite file that ends before its last pages; both
keep what was written before. Formats: mcap.dev/spec, and the tables of rosbag2_storage_sqlite3.
"""

from __future__ import annotations

import mmap
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import IO
from urllib.parse import quote

from alpamayo_ros.evaluation.bag_storage import CDR, Contents, RawMessage
from alpamayo_ros.evaluation.zstd import unpacked

SQLITE_MAGIC = b"SQLite format 3\0"
MCAP_MAGIC = b"\x89MCAP0\r\n"
SCHEMA, CHANNEL, MESSAGE, CHUNK = 0x03, 0x04, 0x05, 0x06
RECORD_HEADER = struct.Struct("<BQ")  # kind, length of what follows
MESSAGE_HEADER = struct.Struct("<HIQQ")  # channel, sequence, log time, publish time
CHUNK_HEADER = struct.Struct("<QQQI")  # first and last log time, uncompressed size, CRC

Buffer = bytes | memoryview


class NotABag(Exception):
    """The file holds nothing that can be read as a bag."""


@dataclass(frozen=True)
class _Place:
    """Where a message's data lie: in the file itself, or in the chunk that begins at an offset of it."""

    receive_ns: int
    topic: str
    chunk: tuple[int, int, str] | None  # begin and end of its compressed records in the file, and the compression
    start: int
    end: int


class DamagedMcap:
    """An MCAP file, scanned record by record.

    Raises:
        NotABag: it isn't MCAP, or holds no topic before the damage.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            if file.read(len(MCAP_MAGIC)) != MCAP_MAGIC:
                raise NotABag("an MCAP file begins with 89 4d 43 41 50")
            self._file = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        self._schemas: dict[int, tuple[str, str, str]] = {}  # name, encoding, text
        self._channels: dict[int, tuple[str, str]] = {}  # topic, type
        self._places: list[_Place] = []
        self._chunk = lru_cache(maxsize=4)(self._decompressed)
        self.damage = self._scan()
        if not self._channels:
            raise NotABag(self.damage)
        self._places.sort(key=lambda place: place.receive_ns)  # stable: the order of writing where times are equal
        self.contents = _contents(
            dict(self._channels.values()),
            {name: (encoding, text) for name, encoding, text in self._schemas.values() if encoding},
            [(place.topic, place.receive_ns) for place in self._places],
        )

    def _scan(self) -> str:
        """Find every message; what ended the file, in words."""
        position = len(MCAP_MAGIC)
        for kind, start, end in _records(self._file, position):
            try:
                if kind == CHUNK:
                    self._scan_chunk(start, end)
                elif end <= len(self._file):
                    self._note(kind, self._file, start, end, None)
            except Exception as error:
                return f"damaged at byte {start} of {len(self._file)}: {error}"
            if end > len(self._file):
                return f"it ends at byte {len(self._file)}, within a record of {end - start} bytes at byte {start}"
            position = end
        return f"it ends at byte {position}, without an index"

    def _scan_chunk(self, start: int, end: int) -> None:
        position = start + CHUNK_HEADER.size
        compression, position = _string(self._file, position)
        position += 8  # the size of the compressed records: what is left of this record
        if not compression:
            for kind, first, last in _records(self._file[: min(end, len(self._file))], position):
                if last <= len(self._file):
                    self._note(kind, self._file, first, last, None)
        elif end <= len(self._file):
            chunk = (position, end, compression)
            records = self._chunk(chunk)
            for kind, first, last in _records(records, 0):
                self._note(kind, records, first, last, chunk)

    def _note(self, kind: int, buffer: Buffer, start: int, end: int, chunk: tuple[int, int, str] | None) -> None:
        if kind == SCHEMA:
            (number,) = struct.unpack_from("<H", buffer, start)
            name, position = _string(buffer, start + 2)
            encoding, position = _string(buffer, position)
            text, _ = _string(buffer, position)
            self._schemas[number] = (name, encoding, text)
        elif kind == CHANNEL:
            number, schema = struct.unpack_from("<HH", buffer, start)
            topic, position = _string(buffer, start + 4)
            message_encoding, _ = _string(buffer, position)
            if message_encoding == CDR and schema in self._schemas:
                self._channels[number] = (topic, self._schemas[schema][0])
        elif kind == MESSAGE:
            channel, _, log_time, _ = MESSAGE_HEADER.unpack_from(buffer, start)
            if channel in self._channels:
                topic = self._channels[channel][0]
                self._places.append(_Place(log_time, topic, chunk, start + MESSAGE_HEADER.size, end))

    def _decompressed(self, chunk: tuple[int, int, str]) -> bytes:
        start, end, compression = chunk
        return _decompressor(compression)(bytes(self._file[start:end]))

    def messages(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The messages of these topics by receive time."""
        for place in self._places:
            if place.topic in topics:
                buffer = self._file if place.chunk is None else self._chunk(place.chunk)
                data = bytes(buffer[place.start : place.end])
                yield RawMessage(place.topic, self.contents.topics[place.topic], place.receive_ns, data)

    def close(self) -> None:
        """Free the file."""
        self._chunk.cache_clear()
        self._places.clear()
        self._file.release()


class DamagedSqlite:
    """An SQLite file, read row by row.

    Raises:
        NotABag: it isn't a bag in SQLite, or no table can be read.
    """

    def __init__(self, path: Path) -> None:
        self._whole_pages = _whole_pages(path)
        name = quote(self._whole_pages.name)
        self._connection = sqlite3.connect(f"file:{name}?mode=ro&immutable=1", uri=True)
        try:
            # Without this SQLite refuses a file that has fewer pages than its header says. Nothing is written.
            self._connection.execute("PRAGMA writable_schema=ON")
            rows = self._connection.execute("SELECT id, name, type, serialization_format FROM topics").fetchall()
        except sqlite3.Error as error:
            self.close()
            raise NotABag(str(error)) from error
        self._topics = {number: (name, kind) for number, name, kind, form in rows if form == CDR}
        self._places: list[tuple[int, int, int]] = []  # receive time, id, topic
        self.damage = self._scan()
        self._places.sort()
        self.contents = _contents(
            dict(self._topics.values()),
            self._definitions(),
            [(self._topics[topic][0], receive_ns) for receive_ns, _, topic in self._places],
        )

    def _scan(self) -> str:
        number = 0
        try:
            for number, topic, receive_ns, _ in self._connection.execute(
                "SELECT id, topic_id, timestamp, data FROM messages NOT INDEXED "
                "WHERE typeof(timestamp) = 'integer' AND typeof(data) = 'blob' ORDER BY id"
            ):
                if topic in self._topics:
                    self._places.append((receive_ns, number, topic))
        except sqlite3.Error as error:
            return f"its messages end at number {number}: {error}"
        return "its index can't be read, its messages can"

    def _definitions(self) -> dict[str, tuple[str, str]]:
        try:
            rows = self._connection.execute(
                "SELECT topic_type, encoding, encoded_message_definition FROM message_definitions"
            ).fetchall()
        except sqlite3.Error:
            return {}  # bags of Humble and older have no such table
        return {kind: (encoding, text) for kind, encoding, text in rows if encoding}

    def messages(self, topics: Collection[str]) -> Iterator[RawMessage]:
        """The messages of these topics by receive time."""
        for receive_ns, number, topic in self._places:
            name, kind = self._topics[topic]
            if name in topics:
                row = self._connection.execute("SELECT data FROM messages WHERE id = ?", (number,)).fetchone()
                if row is not None:  # a damaged table may hold a row that it does not find by its number
                    yield RawMessage(name, kind, receive_ns, row[0])

    def close(self) -> None:
        """Free the file."""
        self._connection.close()
        self._whole_pages.close()


def _whole_pages(path: Path) -> IO[bytes]:
    """The file, or a temporary copy without the page that was cut: of that, SQLite would read the rest as zeros."""
    file = path.open("rb")
    header = file.read(100)
    page = int.from_bytes(header[16:18], "big") if header.startswith(SQLITE_MAGIC) else 0
    page = 65536 if page == 1 else page
    size = path.stat().st_size
    if not page or size % page == 0:
        return file
    with file:
        copy = tempfile.NamedTemporaryFile(prefix="alpamayo_ros_", suffix=".db3")  # noqa: SIM115
        file.seek(0)
        shutil.copyfileobj(file, copy)
    copy.truncate(size - size % page)
    copy.flush()
    return copy


def _contents(
    topics: dict[str, str], definitions: dict[str, tuple[str, str]], messages: list[tuple[str, int]]
) -> Contents:
    """From what was found; `messages` are (topic, receive time), by time."""
    counts = dict.fromkeys(topics, 0)
    for topic, _ in messages:
        counts[topic] += 1
    first, last = (messages[0][1], messages[-1][1]) if messages else (0, 0)
    return Contents(topics, counts, definitions, frozenset({"/tf_static"} & topics.keys()), first, last)


def _records(buffer: Buffer, position: int) -> Iterator[tuple[int, int, int]]:
    """Kind, begin and end of each record's content; the last one may end beyond the buffer."""
    while position + RECORD_HEADER.size <= len(buffer):
        kind, length = RECORD_HEADER.unpack_from(buffer, position)
        start = position + RECORD_HEADER.size
        yield kind, start, start + length
        position = start + length


def _string(buffer: Buffer, position: int) -> tuple[str, int]:
    """The text at that position, and the position behind it."""
    (length,) = struct.unpack_from("<I", buffer, position)
    end = position + 4 + length
    return bytes(buffer[position + 4 : end]).decode(), end


def _decompressor(compression: str) -> Callable[[bytes], bytes]:
    if compression == "zstd":
        return unpacked
    if compression == "lz4":
        decompress: Callable[[bytes], bytes] = import_module("lz4.frame").decompress
        return decompress
    raise ValueError(f"compression {compression!r}, expected zstd or lz4")
