"""Whatever an image message's fields say, there is a picture of that size or an error that names the camera."""

from __future__ import annotations

import struct
import zlib

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.sensors.decode import RAW_ENCODINGS, decode, frame_size

ANY = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
SIZES = st.integers(0, 9) | st.sampled_from([65_535, 2**31 - 1, 2**32 - 1])


def decodes_or_is_named(frame: Frame) -> None:
    for read in (decode, frame_size):
        try:
            found = read(frame)
        except BadImageError as error:
            good = "camera 3" in str(error) and error.serial == 1
        else:
            good = read is frame_size or not frame.height or found.shape == (frame.height, frame.width, 3)
        assert good


@ANY
@given(
    encoding=st.sampled_from([*RAW_ENCODINGS, "vendor_12p", "", "RGB8", "bayer_", "8UC3", "\0"]) | st.text(max_size=6),
    height=SIZES,
    width=SIZES,
    step=st.integers(0, 40) | st.sampled_from([2**32 - 1]),
    data=st.binary(max_size=200),
    big=st.booleans(),
)
@example("rgb8", 2**32 - 1, 2**32 - 1, 2**32 - 1, b"", False)
@example("nv12", 2, 2, 0, bytes(6), False)
def test_any_raw_image(encoding: str, height: int, width: int, step: int, data: bytes, big: bool) -> None:
    decodes_or_is_named(Frame(1, 3, 0, data, encoding, height, width, step, big))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@ANY
@given(
    width=st.integers(0, 2**32 - 1),
    height=st.integers(0, 2**32 - 1),
    depth=st.sampled_from([1, 8, 16, 99]),
    colour=st.integers(0, 7),
    data=st.binary(max_size=60),
)
@example(65_000, 65_000, 8, 2, bytes(10))
def test_any_png_header_with_little_data(width: int, height: int, depth: int, colour: int, data: bytes) -> None:
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    decodes_or_is_named(Frame(1, 3, 0, b"\x89PNG\r\n\x1a\n" + chunks, "png"))
