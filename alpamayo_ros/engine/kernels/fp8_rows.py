"""From one FP8 product to the next: residual, norm and gate, each with the rounding to FP8 behind it.

What a product reads is scaled so that each row's largest value is the largest of E4M3. An `Fp8Product` still lacks its
scales: whatever reads it multiplies by both.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.fp8 import FP8, Fp8Rows
from alpamayo_ros.engine.fp8_product import Fp8Product
from alpamayo_ros.engine.kernels.launch import launch_options, wait_for_inputs


def norm_and_quantize(hidden: Tensor, weight: Tensor, eps: float) -> Fp8Rows:
    """The RMSNorm of [rows, size]."""
    return _quantize(hidden, weight, eps)


def quantize(x: Tensor) -> Fp8Rows:
    """[rows, size] as it is."""
    return _quantize(x, None, 0.0)


def gate_and_quantize(both: Tensor) -> Fp8Rows:
    """silu(g) * u of [rows, 2 size], g before u."""
    count, size = both.shape[0], both.shape[1] // 2
    result = _empty(both, size)
    _gate_and_quantize_kernel[(count,)](
        both,
        result.values,
        result.scales,
        size,
        WIDTH=min(4096, triton.next_power_of_2(size)),
        num_warps=16,
        **launch_options(both.device),
    )
    return result


def add_scaled(hidden: Tensor, product: Fp8Product) -> Tensor:
    """Add a product to the residual stream [rows, size] in place; gives the residual stream."""
    count, size = hidden.shape
    width = min(4096, triton.next_power_of_2(size))
    _add_scaled_kernel[(count, triton.cdiv(size, width))](
        hidden,
        product.values,
        product.rows,
        product.columns,
        size,
        WIDTH=width,
        num_warps=8,
        **launch_options(hidden.device),
    )
    return hidden


def _quantize(x: Tensor, weight: Tensor | None, eps: float) -> Fp8Rows:
    count, size = x.shape
    result = _empty(x, size)
    _quantize_kernel[(count,)](
        x,
        x if weight is None else weight,
        result.values,
        result.scales,
        size,
        eps,
        NORMED=weight is not None,
        WIDTH=triton.next_power_of_2(size),
        num_warps=8 if size >= 2048 else 4,
        **launch_options(x.device),
    )
    return result


def _empty(like: Tensor, size: int) -> Fp8Rows:
    count = len(like)
    return Fp8Rows(
        torch.empty(count, size, dtype=FP8, device=like.device),
        torch.empty(count, 1, dtype=torch.float32, device=like.device),
    )


@triton.jit
def _quantize_kernel(
    x,
    weight,  # of the norm
    values,
    scales,
    size,
    eps,
    NORMED: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    column = tl.arange(0, WIDTH)
    inside = column < size
    row = tl.program_id(0).to(tl.int64)
    factor = tl.full([WIDTH], 1.0, tl.float32)
    if NORMED:
        factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    wait_for_inputs(DEPENDENT)
    some = tl.load(x + row * size + column, mask=inside, other=0.0).to(tl.float32)
    if NORMED:
        some = some * tl.rsqrt(tl.sum(some * some, 0) / size + eps) * factor
    scale = tl.maximum(tl.max(tl.abs(some), 0) / 448.0, 1e-12)
    tl.store(scales + row, scale)
    tl.store(values + row * size + column, (some / scale).to(values.dtype.element_ty), mask=inside)


@triton.jit
def _gated(both, row, column, inside, size):
    at = both + row * 2 * size + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + size, mask=inside, other=0.0).to(tl.float32)
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit
def _gate_and_quantize_kernel(both, values, scales, size, WIDTH: tl.constexpr, DEPENDENT: tl.constexpr):
    """Twice over a row, the second time out of the cache: a whole one in registers leaves room for few programs."""
    row = tl.program_id(0).to(tl.int64)
    offset = tl.arange(0, WIDTH)
    wait_for_inputs(DEPENDENT)
    largest = tl.zeros([WIDTH], tl.float32)
    for start in range(0, size, WIDTH):
        column = start + offset
        largest = tl.maximum(largest, tl.abs(_gated(both, row, column, column < size, size)))
    scale = tl.maximum(tl.max(largest, 0) / 448.0, 1e-12)
    tl.store(scales + row, scale)
    for start in range(0, size, WIDTH):
        column = start + offset
        inside = column < size
        gated = _gated(both, row, column, inside, size)
        tl.store(values + row * size + column, (gated / scale).to(values.dtype.element_ty), mask=inside)


@triton.jit
def _add_scaled_kernel(hidden, product, rows, columns, size, WIDTH: tl.constexpr, DEPENDENT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = column < size
    column_scale = tl.load(columns + column, mask=inside, other=0.0)
    wait_for_inputs(DEPENDENT)
    at = row * size + column
    change = tl.load(product + at, mask=inside, other=0.0).to(tl.float32) * (tl.load(rows + row) * column_scale)
    total = tl.load(hidden + at, mask=inside, other=0.0).to(tl.float32) + change
    tl.store(hidden + at, total.to(hidden.dtype.element_ty), mask=inside)
