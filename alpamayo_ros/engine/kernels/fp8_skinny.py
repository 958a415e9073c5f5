"""Products of a few FP8 rows with large FP8 weights, at the speed of the weights' bytes.

As in skinny_product.py, each program reads a part of the weights once, in deep pipelines, and does what comes after the
product in registers. Here the weights are the tensor cores' left side: 64 of their rows at once, beside as few as 16 of
x, so that FP8 goes from memory into the products without passing registers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.kernels.launch import launch_options, wait_for_inputs
from alpamayo_ros.engine.kernels.skinny_product import ADDED, GATED, PLAIN


@dataclass(frozen=True)
class Fp8Tiles:
    """How a product is cut."""

    columns: int  # of the output, and rows of the weights, per program; 64 is the tensor cores' least
    inner: int  # of the sum, loaded at once
    warps: int
    stages: int
    splits: int = 1  # parts of the sum, of products that are added


# Measured at full size on an H200.
FEW_COLUMNS = Fp8Tiles(columns=64, inner=256, warps=4, stages=4)
MANY_COLUMNS = Fp8Tiles(columns=64, inner=128, warps=4, stages=6)
DEEP = Fp8Tiles(columns=64, inner=256, warps=4, stages=8)  # its stages have room beside as many as LEAST_HEIGHT rows
LONG_SUM = Fp8Tiles(columns=64, inner=256, warps=4, stages=4, splits=4)
FEW = 8192  # columns, up to here
LONG = 8192  # numbers of a sum, from here on
LEAST_HEIGHT = 16  # rows of x that the tensor cores take at once


def product(x: Fp8Rows, weight: Fp8Rows, dtype: torch.dtype, tiles: Fp8Tiles | None = None) -> Tensor:
    """x W^T.

    Args:
        x: [rows, inner].
        weight: [columns, inner].
        dtype: Of the result.
        tiles: How the product is cut; None: as was measured to be best.

    Returns:
        [rows, columns].
    """
    result = torch.empty(len(x.values), len(weight.values), dtype=dtype, device=x.values.device)
    _launch(x, weight, result, PLAIN, tiles)
    return result


def add_product(hidden: Tensor, x: Fp8Rows, weight: Fp8Rows, tiles: Fp8Tiles | None = None) -> Tensor:
    """Add x W^T to the residual stream [rows, columns] in place; gives the residual stream.

    It has few columns, so few programs: each keeps more in flight, or long sums are computed in parts.
    """
    rows, columns = hidden.shape
    if tiles is None:
        tiles = DEEP if rows <= LEAST_HEIGHT else LONG_SUM if x.values.shape[1] >= LONG else FEW_COLUMNS
    if tiles.splits == 1:
        _launch(x, weight, hidden, ADDED, tiles)
        return hidden
    parts = torch.empty(tiles.splits, rows, columns, dtype=torch.float32, device=hidden.device)
    _launch(x, weight, parts, PLAIN, tiles)
    width = min(1024, triton.next_power_of_2(columns))
    _add_parts_kernel[(rows, triton.cdiv(columns, width))](
        hidden,
        parts,
        hidden.numel(),
        columns,
        PARTS=tiles.splits,
        WIDTH=width,
        num_warps=4,
        **launch_options(hidden.device),
    )
    return hidden


def gated_product(x: Fp8Rows, weight: Fp8Rows, dtype: torch.dtype, tiles: Fp8Tiles | None = None) -> Tensor:
    """silu(x G^T) * (x U^T) of a weight [2 columns, inner], G above U: [rows, columns]."""
    result = torch.empty(len(x.values), len(weight.values) // 2, dtype=dtype, device=x.values.device)
    _launch(x, weight, result, GATED, tiles)
    return result


def _launch(x: Fp8Rows, weight: Fp8Rows, result: Tensor, after: int, tiles: Fp8Tiles | None) -> None:
    rows, inner = x.values.shape
    columns = result.shape[-1]
    if tiles is None:
        tiles = FEW_COLUMNS if columns <= FEW else MANY_COLUMNS
    _fp8_product_kernel[(triton.cdiv(columns, tiles.columns), tiles.splits)](
        x.values,
        x.scales,
        weight.values,
        weight.scales,
        result,
        rows,
        columns,
        INNER=inner,
        AFTER=after,
        HEIGHT=max(LEAST_HEIGHT, triton.next_power_of_2(rows)),
        COLUMNS=tiles.columns,
        STEP=min(tiles.inner, triton.next_power_of_2(inner)),
        SPLITS=tiles.splits,
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **launch_options(result.device),
    )


@triton.jit
def _fp8_product_kernel(
    x,  # [rows, INNER]
    x_scales,  # [rows]
    weight,  # [columns, INNER]; when gated [2 columns, INNER]
    weight_scales,  # of its rows
    result,  # [SPLITS, rows, columns]; when added, the residual stream before
    rows,
    columns,
    INNER: tl.constexpr,
    AFTER: tl.constexpr,
    HEIGHT: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    STEPS: tl.constexpr = (INNER + STEP - 1) // STEP
    WHOLE: tl.constexpr = INNER % STEP == 0
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, HEIGHT)
    step = tl.arange(0, STEP)
    column_exists = column < columns
    row_exists = row < rows
    weight_at = weight + column[:, None].to(tl.int64) * INNER + step[None, :]
    x_at = x + row[None, :] * INNER + step[:, None]
    other_half = tl.cast(columns, tl.int64) * INNER
    factor = tl.load(weight_scales + column, mask=column_exists, other=0.0)
    factor_up = factor
    if AFTER == 2:
        factor_up = tl.load(weight_scales + columns + column, mask=column_exists, other=0.0)
    wait_for_inputs(DEPENDENT)

    total = tl.zeros([COLUMNS, HEIGHT], tl.float32)
    total_up = tl.zeros([COLUMNS, HEIGHT], tl.float32)
    split = tl.program_id(1)
    for number in range(split * STEPS // SPLITS, (split + 1) * STEPS // SPLITS):
        at = number * STEP
        weight_mask = column_exists[:, None]
        x_mask = row_exists[None, :]
        if not WHOLE:
            weight_mask = weight_mask & (at + step < INNER)[None, :]
            x_mask = x_mask & (at + step < INNER)[:, None]
        some_weight = tl.load(weight_at + at, mask=weight_mask, other=0.0)
        some_x = tl.load(x_at + at, mask=x_mask, other=0.0)
        total = tl.dot(some_weight, some_x, total)
        if AFTER == 2:
            some_up = tl.load(weight_at + other_half + at, mask=weight_mask, other=0.0)
            total_up = tl.dot(some_up, some_x, total_up)

    scale = tl.load(x_scales + row, mask=row_exists, other=0.0)[None, :]
    total = total * (factor[:, None] * scale)
    mask = column_exists[:, None] & row_exists[None, :]
    to = result + split.to(tl.int64) * rows * columns + row[None, :] * columns + column[:, None]
    if AFTER == 1:
        total += tl.load(to, mask=mask, other=0.0).to(tl.float32)
    if AFTER == 2:
        total = total / (1.0 + tl.exp(-total)) * (total_up * (factor_up[:, None] * scale))
    tl.store(to, total.to(result.dtype.element_ty), mask=mask)


@triton.jit
def _add_parts_kernel(hidden, parts, part, columns, PARTS: tl.constexpr, WIDTH: tl.constexpr, DEPENDENT: tl.constexpr):
    column = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = column < columns
    at = tl.program_id(0) * columns + column
    wait_for_inputs(DEPENDENT)
    total = tl.load(hidden + at, mask=inside, other=0.0).to(tl.float32)
    for number in tl.static_range(PARTS):
        total += tl.load(parts + number * part + at, mask=inside, other=0.0)
    tl.store(hidden + at, total.to(hidden.dtype.element_ty), mask=inside)
