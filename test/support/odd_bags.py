"""The same drive as bags of every shape that recorders leave."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from drives import Message
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

from alpamayo_ros.evaluation.bag import ros_types

MCAP_MAGIC = b"\x89MCAP0\r\n"
DATA_END, FOOTER = 0x0F, 0x02

Make = Callable[[Path, Sequence[Message]], Path]


def write(
    path: Path,
    messages: Sequence[Message],
    storage: StoragePlugin = StoragePlugin.MCAP,
    mode: CompressionMode = CompressionMode.NONE,
) -> Path:
    writer = Writer(path, version=9, storage_plugin=storage)
    if mode is not CompressionMode.NONE:
        writer.set_compression(mode, CompressionFormat.ZSTD)
    with writer:
        connections = {}
        for message in messages:
            kind = message.content.__msgtype__
            if message.topic not in connections:
                connections[message.topic] = writer.add_connection(message.topic, kind, typestore=ros_types())
            writer.write(connections[message.topic], message.stamp_ns, ros_types().serialize_cdr(message.content, kind))
    return path


def packed(storage: StoragePlugin, mode: CompressionMode, *, metadata: bool = True) -> Make:
    def make(path: Path, messages: Sequence[Message]) -> Path:
        write(path, messages, storage, mode)
        if not metadata:
            (path / "metadata.yaml").unlink()
        return path

    return make


def split(storage: StoragePlugin, *, metadata: bool, mode: CompressionMode = CompressionMode.NONE) -> Make:
    """Three files, one after the other."""

    def make(path: Path, messages: Sequence[Message]) -> Path:
        third = len(messages) // 3
        parts = [messages[:third], messages[third : 2 * third], messages[2 * third :]]
        folders = [
            write(path.with_name(f"{path.name}_{number}"), part, storage, mode) for number, part in enumerate(parts)
        ]
        path.mkdir()
        names = []
        for folder in folders:
            (file,) = (file for file in folder.iterdir() if file.name != "metadata.yaml")
            shutil.copy(file, path)
            names.append(file.name)
        if metadata:
            content = yaml.safe_load((folders[0] / "metadata.yaml").read_text())
            content["rosbag2_bagfile_information"]["relative_file_paths"] = names
            (path / "metadata.yaml").write_text(yaml.safe_dump(content))
        for folder in folders:
            shutil.rmtree(folder)
        return path

    return make


def single_file(make: Make) -> Make:
    """Only the file, without its folder."""

    def moved(path: Path, messages: Sequence[Message]) -> Path:
        folder = make(path, messages)
        (file,) = (file for file in folder.iterdir() if file.name != "metadata.yaml")
        return file

    return moved


def mcap_without_summary(path: Path, messages: Sequence[Message]) -> Path:
    """A whole MCAP file whose footer says that it has no summary; chunks and their messages are there."""
    file = mcap_file(write(path, messages))
    data = file.read_bytes()
    footer = struct.pack("<BQQQI", FOOTER, 20, 0, 0, 0)
    file.write_bytes(data[: data_end(data)] + footer + MCAP_MAGIC)
    return path


def mcap_without_index(path: Path, messages: Sequence[Message]) -> Path:
    """What a killed recorder leaves: chunks, then nothing; and no metadata.yaml."""
    file = mcap_file(write(path, messages))
    file.write_bytes(file.read_bytes()[: data_end(file.read_bytes()) - 13])
    (path / "metadata.yaml").unlink()
    return path


def truncated(make: Make, kept: float) -> Make:
    def cut(path: Path, messages: Sequence[Message]) -> Path:
        file = mcap_file(make(path, messages))
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * kept)])
        return path

    return cut


def mcap_file(bag: Path) -> Path:
    (file,) = (file for file in bag.iterdir() if ".mcap" in file.suffixes)
    return file


def data_end(data: bytes) -> int:
    """Where the record that ends the data section ends."""
    position = len(MCAP_MAGIC)
    while True:
        kind, length = struct.unpack_from("<BQ", data, position)
        position += 9 + length
        if kind == DATA_END:
            return position


MCAP, SQLITE = StoragePlugin.MCAP, StoragePlugin.SQLITE3
FILE, MESSAGE, STORAGE = CompressionMode.FILE, CompressionMode.MESSAGE, CompressionMode.STORAGE
WHOLE: dict[str, Make] = {  # nothing is lost in these
    "split": split(MCAP, metadata=True),
    "split_sqlite": split(SQLITE, metadata=True),
    "split_without_metadata": split(MCAP, metadata=False),
    "split_and_packed": split(MCAP, metadata=True, mode=FILE),
    "split_packed_without_metadata": split(SQLITE, metadata=False, mode=FILE),
    "zstd_file": packed(MCAP, FILE),
    "zstd_file_sqlite": packed(SQLITE, FILE),
    "zstd_file_without_metadata": packed(MCAP, FILE, metadata=False),
    "zstd_file_alone": single_file(packed(MCAP, FILE)),
    "zstd_messages": packed(MCAP, MESSAGE),
    "zstd_messages_sqlite": packed(SQLITE, MESSAGE),
    "zstd_messages_without_metadata": packed(MCAP, MESSAGE, metadata=False),
    "zstd_chunks": packed(MCAP, STORAGE),
    "mcap_without_summary": mcap_without_summary,
    "mcap_without_index": mcap_without_index,
}
CUT: dict[str, Make] = {  # the end is lost
    "mcap": truncated(packed(MCAP, CompressionMode.NONE), 0.8),
    "mcap_of_zstd_chunks": truncated(packed(MCAP, STORAGE), 0.8),
    "zstd_file": truncated(packed(MCAP, FILE), 0.8),
    "zstd_messages": truncated(packed(MCAP, MESSAGE), 0.8),
}
