"""model/resize.py's two passes in fixed point as two kernels: bit for bit the same, in a tenth of the time."""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.model.resize import fixed_point_filter

WIDTH = 128  # columns per program


def resize(images: Tensor, height: int, width: int) -> Tensor:
    """Resize uint8 images [N, 3, H, W] with any strides to [N, 3, height, width]."""
    if images.shape[-1] != width:
        images = _pass(images, width, along_rows=True)
    if images.shape[-2] != height:
        images = _pass(images, height, along_rows=False)
    return images.contiguous()


def _pass(images: Tensor, size: int, along_rows: bool) -> Tensor:
    count, channels, height, width = images.shape
    old = width if along_rows else height
    places, weights, precision = _filter(old, size, images.device)
    new_height, new_width = (height, size) if along_rows else (size, width)
    result = images.new_empty(count, channels, new_height, new_width)
    _resize_kernel[(triton.cdiv(new_width, WIDTH), new_height, count * channels)](
        images,
        result,
        places,
        weights,
        new_width,
        channels,
        *images.stride(),
        TAPS=places.shape[1],
        PRECISION=precision,
        ALONG_ROWS=along_rows,
        WIDTH=WIDTH,
        num_warps=4,
    )
    return result


@lru_cache(maxsize=64)
def _filter(old: int, new: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    places, weights, precision = fixed_point_filter(old, new, device)
    return places.int(), weights.int(), precision


@triton.jit
def _resize_kernel(
    images,
    result,  # [N, channels, new height, new width]
    places,  # [new size, TAPS] int32: of the old pixels
    weights,  # [new size, TAPS] int32
    new_width,
    channels,
    image_stride,
    channel_stride,
    row_stride,
    column_stride,
    TAPS: tl.constexpr,
    PRECISION: tl.constexpr,
    ALONG_ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    row = tl.program_id(1)
    plane = tl.program_id(2)
    inside = column < new_width
    source = images + (plane // channels).to(tl.int64) * image_stride + (plane % channels) * channel_stride
    total = tl.zeros([WIDTH], tl.int32)
    for tap in range(TAPS):
        if ALONG_ROWS:
            place = tl.load(places + column * TAPS + tap, mask=inside, other=0)
            weight = tl.load(weights + column * TAPS + tap, mask=inside, other=0)
            at = source + row * row_stride + place * column_stride
        else:
            place = tl.load(places + row * TAPS + tap)
            weight = tl.load(weights + row * TAPS + tap)
            at = source + place * row_stride + column * column_stride
        total += tl.load(at, mask=inside, other=0).to(tl.int32) * weight
    if PRECISION > 0:
        total = (total + (1 << (PRECISION - 1))) >> PRECISION
    level = tl.minimum(tl.maximum(total, 0), 255)
    to = (plane.to(tl.int64) * tl.num_programs(1) + row) * new_width + column
    tl.store(result + to, level.to(tl.uint8), mask=inside)
