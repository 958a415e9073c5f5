"""Resizes images exactly as the model's own preprocessing does, on any device.

The rule: two passes, horizontal first, then vertical, with whole levels of 0 to 255 in between. Each pass is a bicubic
filter (a = -0.5), widened by the scale when it shrinks, with its weights rounded to 16-bit fixed point. This is what
torch's kernel for uint8 does on x86 CPUs, and NVIDIA's code calls that one through torchvision. Pillow takes the other
order for some shapes, and a single pass in floating point rounds only once: either differs by up to 23 levels on noise.

On the CPU torch's kernel does the work. It has no counterpart on GPUs, so there the same fixed-point sums are spelled
out; the results are equal except where a weight lies halfway between two of its steps: one level in some 1e-4 of the
values, for few sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

Resize = Callable[[Tensor, int, int], Tensor]  # uint8 [N, 3, H, W], height, width -> [N, 3, height, width]

_A = -0.5  # of the bicubic filter
_MAX_PRECISION = 22  # bits; fewer where the largest weight wouldn't fit into 16 bits


def resize(images: Tensor, height: int, width: int) -> Tensor:
    """Resize uint8 images [N, 3, H, W] to [N, 3, height, width], on their device."""
    if images.device.type != "cpu":
        return resize_in_fixed_point(images, height, width)
    for size in ((images.shape[-2], width), (height, width)):
        if images.shape[-2:] != size:
            images = functional.interpolate(images, size=size, mode="bicubic", antialias=True)
    return images


def resize_in_fixed_point(images: Tensor, height: int, width: int) -> Tensor:
    """The same, spelled out in tensor operations that every device has."""
    return _resize_rows(_resize_rows(images, width).mT, height).mT.contiguous()


def _resize_rows(images: Tensor, width: int) -> Tensor:
    """Resize along the last dimension."""
    if images.shape[-1] == width:
        return images
    columns, weights, precision = fixed_point_filter(images.shape[-1], width, images.device)
    # Sums of integers below 2^24 are exact in float32, in any order.
    sums = (images[..., columns] * weights).sum(-1)
    return ((sums + 2 ** (precision - 1)) / 2**precision).floor().clamp(0, 255).to(torch.uint8)


@lru_cache(maxsize=64)
def fixed_point_filter(size: int, new_size: int, device: torch.device) -> tuple[Tensor, Tensor, int]:
    """For every new pixel the old ones that it sees, their weights, and by how many bits these are shifted.

    Returns:
        [new_size, taps] int64, [new_size, taps] float32 that holds integers, bits.
    """
    scale = size / new_size
    stretch = max(scale, 1.0)
    centre = (torch.arange(new_size, dtype=torch.float64) + 0.5) * scale
    first = (centre - 2 * stretch + 0.5).long().clamp(min=0)
    stop = (centre + 2 * stretch + 0.5).long().clamp(max=size)
    columns = first[:, None] + torch.arange(int((stop - first).max()))
    weights = _bicubic((columns + 0.5 - centre[:, None]) / stretch) * (columns < stop[:, None])
    weights = weights / weights.sum(1, keepdim=True)
    largest = weights.max().item()
    precision = next(
        p for p in range(_MAX_PRECISION + 1) if p == _MAX_PRECISION or largest * 2 ** (p + 1) + 0.5 >= 2**15
    )
    fixed = (weights * 2**precision + 0.5 * weights.sign()).trunc()
    return columns.clamp(max=size - 1).to(device), fixed.float().to(device), precision


def _bicubic(distance: Tensor) -> Tensor:
    d = distance.abs()
    near = ((_A + 2) * d - (_A + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * _A
    return torch.where(d < 1, near, torch.where(d < 2, far, torch.zeros_like(d)))
