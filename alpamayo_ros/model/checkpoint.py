"""NVIDIA's checkpoint folders: config.json and one or many safetensors files, streamed into a model."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.config import base_folder, read_json

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

# Alpamayo R1 stores these buffers with its weights; 1.5 computes them from its config.
FREQUENCIES = (
    "action_in_proj.sinus.0.freqs",
    "action_in_proj.sinus.1.freqs",
    "action_in_proj.timestep_fourier_encoder.freqs",
)
CONSTANTS = {f"action_space.{name}": name for name in ("accel_mean", "accel_std", "curvature_mean", "curvature_std")}
LISTED = 8  # names in an error message before "and N more"


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies, and what it is."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # as safetensors names it


class Checkpoint:
    """A folder whose tensors are known but not read.

    Raises:
        ConfigurationError: files that are missing, damaged, or disagree.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ConfigurationError(f"the checkpoint {folder} is no folder; it has to be one with config.json in it")
        self.folder = folder
        self.raw_config = read_json(folder / "config.json")
        self.files = _weight_files(folder)
        self.tensors: dict[str, StoredTensor] = {}
        for file in self.files:
            for name, stored in _read_header(file).items():
                if name in self.tensors:
                    raise ConfigurationError(f"the tensor {name} is in {self.tensors[name].file.name} and {file.name}")
                self.tensors[name] = stored
        self._check_index()

    @property
    def hash(self) -> str:
        """sha256 over config.json and the headers and sizes of the weight files: quick, and tells checkpoints apart."""
        digest = hashlib.sha256((self.folder / "config.json").read_bytes())
        for file in self.files:
            with file.open("rb") as stream:
                size = struct.unpack("<Q", stream.read(8))[0]
                digest.update(stream.read(size))
                digest.update(stream.read(1 << 16))  # some weights: those of random checkpoints differ by them alone
            digest.update(str(file.stat().st_size).encode())
        return digest.hexdigest()

    def constants(self) -> dict[str, float]:
        """The normalisation constants that are stored with the weights; empty for Alpamayo 1.5."""
        stored = {name: key for name, key in CONSTANTS.items() if name in self.tensors}
        return {stored[name]: float(tensor.float()) for name, tensor in self.read(stored)}

    def frequencies(self) -> Tensor | None:
        """The action projection's frequencies [F] float32, where they are stored."""
        stored = [name for name in FREQUENCIES if name in self.tensors]
        found = [tensor.float().flatten() for _, tensor in self.read(stored)]
        if any(not torch.equal(found[0], each) for each in found):
            raise ConfigurationError(f"{', '.join(stored)} differ; they have to be equal")
        return found[0] if found else None

    def read(self, names: Mapping[str, object] | list[str] | set[str]) -> Iterator[tuple[str, Tensor]]:
        """These tensors, file by file, each in memory only while it is used."""
        for file in self.files:
            here = [name for name in names if self.tensors[name].file == file]
            if not here:
                continue
            with safe_open(file, framework="pt") as stream:
                for name in here:
                    yield name, stream.get_tensor(name)

    def load_into(self, model: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
        """Give a model its parameters, one tensor at a time, on their device and in their type.

        Raises:
            ConfigurationError: naming every tensor that is missing, unexpected or of another shape.
        """
        wanted = dict(model.named_parameters())
        self._check_against({name: tuple(parameter.shape) for name, parameter in wanted.items()})
        modules = dict(model.named_modules())
        for name, tensor in self.read(set(wanted)):
            owner, _, attribute = name.rpartition(".")
            parameter = nn.Parameter(tensor.to(device=device, dtype=dtype), requires_grad=False)
            modules[owner].register_parameter(attribute, parameter)
        for module in modules.values():
            for attribute, buffer in list(module._buffers.items()):
                if buffer is not None:
                    module._buffers[attribute] = buffer.to(device)

    def tokenizer(self, base_model: Path | None = None) -> Tokenizer:
        """The tokenizer beside the weights, or the backbone's.

        Raises:
            ConfigurationError: there is none.
        """
        base = base_folder(self.folder, self.raw_config, base_model)
        folders = [self.folder] if base is None else [self.folder, base]
        if base_model is not None:
            folders = [base_model, self.folder]
        for folder in folders:
            if (folder / "tokenizer.json").exists():
                return Tokenizer.from_file(str(folder / "tokenizer.json"))
        name = self.raw_config.get("vlm_name_or_path", "")
        raise ConfigurationError(
            f"no tokenizer.json in {' or '.join(map(str, folders))}; download the tokenizer of {name!r}, which "
            "config.json names as the backbone, and give its folder as base_model"
        )

    def _check_index(self) -> None:
        path = self.folder / INDEX
        if not path.exists():
            return
        listed = read_json(path).get("weight_map", {})
        lost = sorted(name for name, file in listed.items() if name not in self.tensors)
        if lost:
            raise ConfigurationError(f"{path} lists tensors that its files don't hold: {_listing(lost)}")

    def _check_against(self, wanted: Mapping[str, tuple[int, ...]]) -> None:
        extra = set(FREQUENCIES) | set(CONSTANTS)
        missing = sorted(set(wanted) - set(self.tensors))
        unexpected = sorted(set(self.tensors) - set(wanted) - extra)
        misshapen = [
            f"{name} has the shape {list(self.tensors[name].shape)}, not {list(shape)}"
            for name, shape in sorted(wanted.items())
            if name in self.tensors and self.tensors[name].shape != shape
        ]
        problems = []
        if missing:
            problems.append(f"missing: {_listing(missing)}")
        if unexpected:
            problems.append(f"unexpected: {_listing(unexpected)}")
        if misshapen:
            problems.append(f"misshapen: {_listing(misshapen)}")
        if problems:
            raise ConfigurationError(f"the tensors of {self.folder} don't fit its config.json; " + "; ".join(problems))


def _weight_files(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        names = sorted(set(read_json(folder / INDEX).get("weight_map", {}).values()))
        files = [folder / name for name in names]
    else:
        files = sorted(folder.glob("*.safetensors"))
    lost = [file.name for file in files if not file.exists()]
    if lost:
        raise ConfigurationError(f"{folder} lacks {_listing(lost)}, which {INDEX} names; download the rest of it")
    if not files:
        raise ConfigurationError(f"{folder} holds no .safetensors file; a checkpoint has to have {SINGLE} or {INDEX}")
    return files


def _read_header(file: Path) -> dict[str, StoredTensor]:
    """The tensors that a file holds, checked against its size.

    Raises:
        ConfigurationError: it is no safetensors file, or is cut off.
    """
    try:
        with safe_open(file, framework="pt"):  # the library's own checks of header and size
            pass
        with file.open("rb") as stream:
            header = json.loads(stream.read(struct.unpack("<Q", stream.read(8))[0]))
    except (SafetensorError, OSError, ValueError, struct.error) as error:
        raise ConfigurationError(
            f"{file} is no complete safetensors file ({error}); download it again ({file.stat().st_size} bytes here)"
        ) from error
    return {
        name: StoredTensor(file, tuple(entry["shape"]), entry["dtype"])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _listing(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
