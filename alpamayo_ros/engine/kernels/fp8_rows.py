"""From one FP8 product to the next: norm, gate and residual, with the scales of the product before and those after.

Products are computed on FP8 values alone, so what they give still lacks its scales: the row's, which is its token's,
and the column's, which is its output channel's. Whatever reads it multiplies by both; bfloat16 has the range for what
comes between. What a product reads is scaled so that each row's largest value is the largest of E4M3.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.fp8 import FP8, Fp8Rows
from alpamayo_ros.engine.kernels.launch import launch_options, wait_for_inputs


def norm_and_quantize(hidden: Tensor, weight: Tensor, eps: float) -> Fp8Rows:
    """The RMSNorm of [rows, size]."""
    return _quantize(hidden, weight, eps)


def quantize(x: Tensor) -> Fp8Rows:
    """[rows, size] as it is."""
    return _quantize(x, None, 0.0)


def gate_and_quantize(both: Tensor, rows: Tensor, columns: Tensor) -> Fp8Rows:
    """silu(g) * u of a product's [rows, 2 size], g before u.

    Args:
        both: Without its scales.
        rows, columns: The scales, [rows, 1] and [2 size, 1].
    """
    count, size = both.shape[0], both.shape[1] // 2
    result = _empty(both, size)
    _gate_and_quantize_kernel[(count,)](
        both,
        rows,
        columns,
        result.values,
        result.scales,
        size,
        WIDTH=triton.next_power_of_2(size),
        num_warps=16 if size >= 8192 else 4,
        **launch_options(both.device),
    )
    return result


def add_scaled(hidden: Tensor, product: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Add a product [rows, size] to the residual stream in place.

    Args:
        hidden: [rows, size], overwritten by the sum.
        product: Without its scales.
        rows, columns: The scales, [rows, 1] and [size, 1].

    Returns:
        The residual stream.
    """
    count, size = hidden.shape
    width = min(4096, triton.next_power_of_2(size))
    _add_scaled_kernel[(count, triton.cdiv(size, width))](
        hidden, product, rows, columns, size, WIDTH=width, num_warps=8, **launch_options(hidden.device)
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
def _store_quantized(x, values, scales, row, column, inside, size):
    """x is float32, and zero where it isn't inside."""
    scale = tl.maximum(tl.max(tl.abs(x), 0) / 448.0, 1e-12)
    tl.store(scales + row, scale)
    tl.store(values + row * size + column, (x / scale).to(values.dtype.element_ty), mask=inside)


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
    _store_quantized(some, values, scales, row, column, inside, size)


@triton.jit
def _gate_and_quantize_kernel(both, rows, columns, values, scales, size, WIDTH: tl.constexpr, DEPENDENT: tl.constexpr):
    column = tl.arange(0, WIDTH)
    inside = column < size
    row = tl.program_id(0).to(tl.int64)
    gate_scale = tl.load(columns + column, mask=inside, other=0.0)
    up_scale = tl.load(columns + size + column, mask=inside, other=0.0)
    wait_for_inputs(DEPENDENT)
    scale = tl.load(rows + row)
    at = both + row * 2 * size + column
    gate = tl.load(at, mask=inside, other=0.0).to(tl.float32) * (scale * gate_scale)
    up = tl.load(at + size, mask=inside, other=0.0).to(tl.float32) * (scale * up_scale)
    _store_quantized(gate / (1.0 + tl.exp(-gate)) * up, values, scales, row, column, inside, size)


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
