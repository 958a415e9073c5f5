"""Zstandard in bags: whole files, as `--compression-mode file` leaves them, single messages, and chunks of MCAP.

The module that does it has another name in each Python: `compression.zstd` from 3.14 on, `backports.zstd` before, and
`zstandard` where rosbags is older. rosbags brings the one that it needs.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

MODULES = ("compression.zstd", "backports.zstd", "zstandard")
FRAME = b"\x28\xb5\x2f\xfd"  # what a frame begins with (RFC 8878); CDR begins with 0
SUFFIX = ".zstd"  # of a file that is packed
BLOCK = 1 << 20  # bytes read at once


def is_packed(data: bytes) -> bool:
    """Whether a message is a frame of Zstandard."""
    return data.startswith(FRAME)


def unpacked(data: bytes) -> bytes:
    """The bytes of a message or chunk.

    Raises:
        Exception: the frame is damaged; of whatever kind the module raises.
    """
    content: bytes = _module().decompress(data)
    return content


def unpack_file(packed: Path, folder: Path) -> Path:
    """The file in `folder`, unpacked; up to the damage, if it is damaged.

    Raises:
        OSError: it can't be read, or the disk is full.
        ValueError: nothing of it can be unpacked.
    """
    target = folder / packed.name.removesuffix(SUFFIX)
    with packed.open("rb") as source, target.open("wb") as out:
        module = _module()
        decompressor = None
        while block := source.read(BLOCK):
            while block:
                if decompressor is None:
                    decompressor = _decompressor(module)
                try:
                    out.write(decompressor.decompress(block))
                except OSError:
                    raise
                except Exception as error:
                    if not out.tell():
                        raise ValueError(f"{error}; expected a file of Zstandard") from error
                    return target
                block = b""
                if decompressor.eof:  # frames may follow each other
                    block, decompressor = decompressor.unused_data, None
    return target


def _decompressor(module: Any) -> Any:
    made = module.ZstdDecompressor()
    return made.decompressobj() if hasattr(made, "decompressobj") else made


def _module() -> Any:
    for name in MODULES:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ValueError(f"no module unpacks Zstandard, expected one of {', '.join(MODULES)}")
