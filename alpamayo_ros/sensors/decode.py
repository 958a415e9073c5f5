"""A camera's bytes to RGB.

Known encodings are decoded here, with NumPy and OpenCV. What the table doesn't know goes to `cv_bridge` where that is
installed. Names are those of sensor_msgs/image_encodings.hpp and of image_transport's `CompressedImage.format`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.sensors.compressed import image_size

__all__ = ["RAW_ENCODINGS", "decode", "frame_size"]

Image = NDArray[np.uint8]
Pixels = NDArray[Any]  # of any depth; what OpenCV's own annotations leave open
Room = Callable[[int, int], Image]  # height, width -> memory for a picture, [H, W, 3] without gaps


@dataclass(frozen=True)
class RawEncoding:
    """How rows of bytes become RGB.

    `convert` is given [rows, width, channels] of `dtype` in the machine's byte order, without padding, and writes
    [height, width, 3] uint8.
    """

    convert: Callable[[Pixels, Image], None]
    channels: int = 1
    dtype: str = "u1"
    even_width: bool = False  # two columns share their colour
    half_planes: bool = False  # rows = height * 3/2: brightness, then colour at half the resolution; even height
    least: int = 1  # pixels of height and of width that it can be made from


def _color(code: int, **layout: int | str | bool) -> RawEncoding:
    return RawEncoding(lambda pixels, to: _recolor(pixels, code, to), **layout)  # type: ignore[arg-type]


def _recolor(pixels: Pixels, code: int, to: Image) -> None:
    """OpenCV writes into an array of fitting size and type, and makes one of its own otherwise."""
    if pixels.dtype != to.dtype:
        np.copyto(to, _to_8_bit(cv2.cvtColor(pixels, code)))
        return
    written = cv2.cvtColor(pixels, code, dst=to)
    assert np.shares_memory(written, to), f"{pixels.shape} became {written.shape}, expected {to.shape}"


def _to_8_bit(pixels: Pixels) -> Pixels:
    """16 bit: the full range onto the full range, rounded, as cv_bridge does it: v * 255 / 65535."""
    if pixels.dtype == np.uint8:
        return pixels
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)


_UYVY = _color(cv2.COLOR_YUV2RGB_UYVY, channels=2, even_width=True)
_YUYV = _color(cv2.COLOR_YUV2RGB_YUYV, channels=2, even_width=True)


def _both_depths(name: str, code: int, **layout: int) -> dict[str, RawEncoding]:
    """The encoding with 8 bit and that with 16."""
    return {f"{name}8": _color(code, **layout), f"{name}16": _color(code, dtype="u2", **layout)}


def _bayer(pattern: str, code: int) -> dict[str, RawEncoding]:
    return _both_depths(f"bayer_{pattern}", code, least=3)  # from less, OpenCV makes black pixels


# YUV is BT.601 of limited range, as OpenCV and cv_bridge have it. Bayer names are those of the top left 2x2 pixels.
RAW_ENCODINGS: dict[str, RawEncoding] = {
    "rgb8": RawEncoding(lambda pixels, to: np.copyto(to, pixels), channels=3),
    "rgb16": RawEncoding(lambda pixels, to: np.copyto(to, _to_8_bit(pixels)), channels=3, dtype="u2"),
    **_both_depths("bgr", cv2.COLOR_BGR2RGB, channels=3),
    **_both_depths("rgba", cv2.COLOR_RGBA2RGB, channels=4),
    **_both_depths("bgra", cv2.COLOR_BGRA2RGB, channels=4),
    **_both_depths("mono", cv2.COLOR_GRAY2RGB),
    **_bayer("rggb", cv2.COLOR_BayerRGGB2RGB),
    **_bayer("bggr", cv2.COLOR_BayerBGGR2RGB),
    **_bayer("gbrg", cv2.COLOR_BayerGBRG2RGB),
    **_bayer("grbg", cv2.COLOR_BayerGRBG2RGB),
    "yuv422": _UYVY,
    "uyvy": _UYVY,
    "yuv422_yuy2": _YUYV,
    "yuyv": _YUYV,
    "nv12": _color(cv2.COLOR_YUV2RGB_NV12, even_width=True, half_planes=True),
    "nv21": _color(cv2.COLOR_YUV2RGB_NV21, even_width=True, half_planes=True),
}


def in_new_memory(height: int, width: int) -> Image:
    """Room for a picture."""
    return np.empty((height, width, 3), np.uint8)


def decode(frame: Frame, room: Room = in_new_memory) -> Image:
    """The frame's picture: [H, W, 3] uint8, RGB.

    A frame without size and step is a JPEG or PNG file, whatever its encoding is called; the file's own colour order
    counts, its EXIF orientation doesn't (a camera's pixels are where its calibration has them). One that is cut short
    is refused. Damage inside a JPEG's coded data can't be told from a picture.

    Args:
        frame: What a camera sent.
        room: Gives the memory that the picture is written into, and that is returned.

    Raises:
        BadImageError: the frame can't be decoded; names camera, stamp, encoding, what is wrong and what would be right.
    """
    try:
        if _is_compressed(frame):
            return _decode_file(frame, room)
        if frame.encoding in RAW_ENCODINGS:
            return _decode_rows(frame, RAW_ENCODINGS[frame.encoding], room)
        return _decode_by_cv_bridge(frame, room)
    except (ValueError, cv2.error) as error:
        raise BadImageError(
            f"camera {frame.camera}, stamp {frame.stamp_ns} ns, encoding {frame.encoding!r}: {error}", frame.serial
        ) from error


def frame_size(frame: Frame) -> tuple[int, int]:
    """Height and width of the frame's picture, in pixels, without decoding it.

    Raises:
        BadImageError: the file is empty, truncated, or neither JPEG nor PNG.
    """
    if not _is_compressed(frame):
        return frame.height, frame.width
    try:
        return image_size(_bytes(frame))
    except ValueError as error:
        raise BadImageError(
            f"camera {frame.camera}, stamp {frame.stamp_ns} ns, encoding {frame.encoding!r}: {error}", frame.serial
        ) from error


def _is_compressed(frame: Frame) -> bool:
    return not (frame.height or frame.width or frame.step)


def _bytes(frame: Frame) -> Image:
    return np.frombuffer(frame.data, np.uint8)


def _decode_file(frame: Frame, room: Room) -> Image:
    data = _bytes(frame)
    image_size(data)
    original = frame.encoding.split(";")[0].strip()
    if original.startswith("bayer_"):
        # image_transport compresses a Bayer image as it is, in one channel; others interpolate it before
        pixels = _read_file(data, cv2.IMREAD_UNCHANGED)
        if pixels.ndim == 2:
            to = room(*pixels.shape)
            _bayer_encoding(original).convert(pixels, to)
            return to
    flags = cv2.IMREAD_COLOR | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = _read_file(data, flags)
    to = room(*pixels.shape[:2])
    _recolor(pixels, cv2.COLOR_BGR2RGB, to)
    return to


def _read_file(data: Image, flags: int) -> Pixels:
    pixels: Pixels | None = cv2.imdecode(data, flags)
    if pixels is None:
        raise ValueError(f"OpenCV can't decode the file's {len(data)} bytes, expected an intact JPEG or PNG file")
    return _to_8_bit(pixels)


def _bayer_encoding(name: str) -> RawEncoding:
    """The encoding of a mosaic in a file, which has become 8 bit by then."""
    found = RAW_ENCODINGS.get(name.replace("16", "8"))
    if found is None:
        known = ", ".join(each for each in RAW_ENCODINGS if each.startswith("bayer_"))
        raise ValueError(f"the file holds the mosaic of an unknown pattern, expected one of {known}")
    return found


def _decode_rows(frame: Frame, encoding: RawEncoding, room: Room) -> Image:
    height, width, step = frame.height, frame.width, frame.step
    if height < encoding.least or width < encoding.least:
        raise ValueError(f"the image is {width}x{height} pixels, expected at least {encoding.least}x{encoding.least}")
    if encoding.even_width and width % 2:
        raise ValueError(f"the image is {width} pixels wide, expected an even number: two columns share their colour")
    if encoding.half_planes and height % 2:
        raise ValueError(f"the image is {height} pixels high, expected an even number: two rows share their colour")
    dtype = np.dtype(encoding.dtype).newbyteorder(">" if frame.is_bigendian else "<")
    used = width * encoding.channels * dtype.itemsize
    rows = height * 3 // 2 if encoding.half_planes else height
    data = _bytes(frame)
    if encoding.half_planes and data.size == rows * used:
        step = used  # tightly packed; drivers disagree on what a step over two planes is
    if step < used:
        raise ValueError(f"step is {step} bytes, expected at least {used} for rows of {width} pixels")
    if data.size not in (rows * step, (rows - 1) * step + used):  # the last row may come without its padding
        raise ValueError(f"the data are {data.size} bytes, expected {rows * step}: {rows} rows of {step} bytes")
    pixels = _without_padding(data, rows, used, step).view(dtype).reshape(rows, width, encoding.channels)
    to = room(height, width)
    encoding.convert(pixels.astype(encoding.dtype, copy=False), to)  # OpenCV takes the machine's byte order alone
    return to


def _without_padding(data: Image, rows: int, used: int, step: int) -> Image:
    """The first `used` of each row's `step` bytes; the last row may come without its padding."""
    if step == used:
        return data
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(data, (rows, used), (step, 1))).reshape(-1)


def _decode_by_cv_bridge(frame: Frame, room: Room) -> Image:
    unknown = f"unknown encoding, expected one of {', '.join(RAW_ENCODINGS)}"
    try:
        bridge = import_module("cv_bridge").CvBridge()
    except Exception as error:  # absent, or built for another NumPy or ROS
        raise ValueError(f"{unknown}; or else an installed cv_bridge that knows it ({error})") from error
    try:
        data, step = bytes(_bytes(frame)), frame.step
        if frame.width and step % frame.width:  # padded rows: older versions of cv_bridge shear such a picture
            data, step = _packed(frame, *bridge.encoding_to_dtype_with_channels(frame.encoding))
        message = SimpleNamespace(
            height=frame.height,
            width=frame.width,
            step=step,
            encoding=frame.encoding,
            is_bigendian=frame.is_bigendian,
            data=data,
        )
        picture = bridge.imgmsg_to_cv2(message, "rgb8")
        to = room(*picture.shape[:2])
        np.copyto(to, picture)
        return to
    except Exception as error:  # its own CvBridgeError, and what its C++ part lets through
        raise ValueError(f"{unknown}; cv_bridge does not know it either ({error})") from error


def _packed(frame: Frame, dtype: Any, channels: int) -> tuple[bytes, int]:
    """Data and step without the padding of rows."""
    data, used = _bytes(frame), frame.width * channels * np.dtype(dtype).itemsize
    if frame.step < used or data.size < (frame.height - 1) * frame.step + used:
        raise ValueError(f"{data.size} bytes in rows of {frame.step}, expected rows of at least {used} bytes")
    return bytes(_without_padding(data, frame.height, used, frame.step)), used
