"""The outside of JPEG and PNG files: is the file whole, and how large is its picture? Nothing is decoded here.

Decoders fill what is missing of a truncated JPEG with gray and only print a warning, so the file is walked from segment
to segment first: ITU-T T.81 annex B for JPEG, the PNG specification (third edition) section 5 for PNG.
"""

from __future__ import annotations

import re
import struct

import numpy as np
from numpy.typing import NDArray

JPEG_START = b"\xff\xd8"
PNG_START = b"\x89PNG\r\n\x1a\n"
MAX_PIXELS = 100_000_000  # a header that claims more is damaged, or meant to exhaust the memory

START_OF_FRAME = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # of every coding process; the three are tables
WITHOUT_LENGTH = frozenset({0x01, 0xD8})
END_OF_IMAGE = 0xD9
# In a scan's coded data 0xff is followed by 0x00 (a stuffed byte) or a restart marker; further 0xff are fill bytes.
MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)


def image_size(data: bytes | memoryview | NDArray[np.uint8]) -> tuple[int, int]:
    """Height and width in pixels of a whole JPEG or PNG file, in about a microsecond per kilobyte.

    Bytes after the end of the image are allowed: cameras pad their buffers.

    Raises:
        ValueError: the data are empty, neither JPEG nor PNG, truncated, or claim an impossible size; says which.
    """
    if not len(data):
        raise ValueError("the data are empty, expected a JPEG or PNG file")
    data = bytes(data)
    if data.startswith(JPEG_START):
        height, width = _jpeg_size(data)
    elif data.startswith(PNG_START):
        height, width = _png_size(data)
    else:
        raise ValueError(
            f"the {len(data)} bytes begin with {data[:8].hex(' ')}, expected a JPEG (ff d8) or PNG (89 50 4e 47) file"
        )
    if not 0 < height * width <= MAX_PIXELS:
        raise ValueError(f"the header claims {width}x{height} pixels, expected 1 to {MAX_PIXELS} pixels in all")
    return height, width


def _jpeg_size(data: bytes) -> tuple[int, int]:
    size = None
    position = len(JPEG_START)
    while found := MARKER.search(data, position):
        position = found.end()
        marker = data[position - 1]
        if marker == END_OF_IMAGE:
            if size is None:
                raise ValueError("the JPEG file ends before its picture begins")
            return size
        if marker in START_OF_FRAME and position + 7 <= len(data):
            size = struct.unpack_from(">HH", data, position + 3)
        if marker not in WITHOUT_LENGTH and position + 2 <= len(data):
            position += struct.unpack_from(">H", data, position)[0]
    raise _truncated("JPEG", data, "its end-of-image marker (ff d9)")


def _png_size(data: bytes) -> tuple[int, int]:
    size = None
    position = len(PNG_START)
    while position + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind == b"IHDR" and position + 16 <= len(data):
            width, height = struct.unpack_from(">II", data, position + 8)
            size = (height, width)
        position += 12 + length
        if kind == b"IEND" and size is not None and position <= len(data):
            return size
    raise _truncated("PNG", data, "its IEND chunk")


def _truncated(kind: str, data: bytes, missing: str) -> ValueError:
    return ValueError(f"the {kind} file is truncated: its {len(data)} bytes end before {missing}")
