"""Checkpoints in safetensors: found, checked as a whole, and streamed tensor by tensor to where they are used."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.config import INDEX_FILE, SINGLE_FILE, read_json

HASHED_BYTES = 1 << 16  # of each file's data
LFS_POINTER = b"version https://git-lfs"
FLOAT_TYPES = {"BF16": 2, "F16": 2, "F32": 4, "F64": 8}  # bytes per number


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a file."""

    file: Path
    dtype: str  # as safetensors says it: "BF16", ...
    shape: tuple[int, ...]

    @property
    def numbers(self) -> int:
        """How many it holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Checkpoint:
    """The weight files of a folder by their headers."""

    folder: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, TensorEntry]
    hash: str  # sha256 over the files' names, sizes, headers and first weights: quick, and tells them apart; or ""

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Read the headers of model.safetensors, or of the shards that its index lists.

        Raises:
            ConfigurationError: no weights, a shard that is missing, a file that is truncated or no safetensors, or a
                tensor in two files.
        """
        files = tuple(_weight_files(folder))
        tensors: dict[str, TensorEntry] = {}
        digest = hashlib.sha256()
        for file in files:
            header = _read_header(file)
            digest.update(f"{file.name} {file.stat().st_size} ".encode() + header + _sample(file, len(header)))
            for name, entry in json.loads(header).items():
                if name in tensors:
                    raise ConfigurationError(f"{name} is in {tensors[name].file} as well as in {file}")
                if name != "__metadata__":
                    tensors[name] = TensorEntry(file, entry["dtype"], tuple(entry["shape"]))
        return cls(folder, files, tensors, digest.hexdigest())

    @classmethod
    def without_files(cls, folder: Path) -> Checkpoint:
        """That of a folder whose weights are made on loading."""
        return cls(folder, (), {}, "")

    def problems(self, expected: Mapping[str, tuple[int, ...]], optional: Collection[str] = ()) -> list[str]:
        """What keeps these weights from filling a model, one line per tensor."""
        lines = [f"{name} is missing; its shape is {list(expected[name])}" for name in expected.keys() - self.tensors]
        for name, entry in self.tensors.items():
            if name not in expected:
                if name not in optional:
                    lines.append(f"{name} in {entry.file.name} is unexpected")
            elif entry.shape != expected[name]:
                lines.append(
                    f"{name} in {entry.file.name} has the shape {list(entry.shape)}; "
                    f"it has to be {list(expected[name])}"
                )
            elif entry.dtype not in FLOAT_TYPES:
                lines.append(
                    f"{name} in {entry.file.name} has the type {entry.dtype}; it has to be one of "
                    f"{', '.join(FLOAT_TYPES)}"
                )
        return sorted(lines)

    def load_into(self, model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        """Give every parameter of a model that was made on the meta device its values.

        One tensor at a time lies in host memory besides the model.

        Raises:
            ConfigurationError: a file that can't be read after all.
        """
        wanted = {name for name, _ in model.named_parameters()}
        for name, tensor in self.stream(wanted):
            # a change of type takes memory for a second copy of the tensor: on the device, if there is one
            value = tensor.to(dtype, copy=True) if device.type == "cpu" else tensor.to(device).to(dtype)
            set_parameter(model, name, value)

    def stream(self, names: Collection[str]) -> Iterator[tuple[str, Tensor]]:
        """The named tensors, file by file; each is a view of its file that holds until the next."""
        by_file: dict[Path, list[str]] = defaultdict(list)
        for name in names:
            by_file[self.tensors[name].file].append(name)
        for file in self.files:
            try:
                with safe_open(file, framework="pt", device="cpu") as weights:
                    for name in sorted(by_file[file]):
                        yield name, weights.get_tensor(name)
            except (OSError, ValueError, SafetensorError) as error:
                raise ConfigurationError(f"{file} can't be read: {error}") from error


def set_parameter(model: nn.Module, name: str, value: Tensor) -> None:
    """Put a tensor in the place of a parameter."""
    path, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(path), leaf, nn.Parameter(value, requires_grad=False))


def _weight_files(folder: Path) -> Iterator[Path]:
    index = folder / INDEX_FILE
    if not index.is_file():
        if not (folder / SINGLE_FILE).is_file():
            raise ConfigurationError(f"{folder} has neither {SINGLE_FILE} nor {INDEX_FILE}; it holds no weights")
        yield folder / SINGLE_FILE
        return
    names: Any = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not names:
        raise ConfigurationError(f"{index} has no weight_map")
    outside = sorted({str(name) for name in names.values() if Path(str(name)).name != name})
    if outside:
        raise ConfigurationError(f"{index} lists {', '.join(outside)}; shards have to lie beside it")
    files = sorted({folder / name for name in names.values()})
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ConfigurationError(f"{index} lists {', '.join(missing)}, which the folder doesn't have")
    yield from files


def _sample(file: Path, header_length: int) -> bytes:
    """Some of the data: checkpoints that differ by their seed alone have equal headers."""
    with file.open("rb") as stream:
        stream.seek(8 + header_length)
        return stream.read(HASHED_BYTES)


def _read_header(file: Path) -> bytes:
    """The JSON header of a safetensors file whose size agrees with it.

    The format: 8 bytes little-endian length, that many bytes of JSON, then the data.
    """
    size = file.stat().st_size
    if size < 1000 and file.read_bytes().startswith(LFS_POINTER):
        raise ConfigurationError(f"{file} is a pointer of Git LFS and not the weights; fetch them with `git lfs pull`")
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length) if 8 + length <= size else b""
    try:
        entries = json.loads(header)
        ends = (entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__")
        needed = 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise ConfigurationError(f"{file} is no safetensors file, or is cut short") from error
    if needed != size:
        raise ConfigurationError(f"{file} has {size} bytes; by its header it has to have {needed}")
    try:
        with safe_open(file, framework="pt"):
            return header
    except (OSError, SafetensorError) as error:
        raise ConfigurationError(f"{file} has a header that contradicts itself: {error}") from error
