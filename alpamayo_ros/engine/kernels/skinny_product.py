"""Products of a few rows with large weights, y = x W^T: bound by how fast the weights come from memory.

cuBLAS leaves a third of the bandwidth unused when there are few rows. Here each program reads a part of the weights
once, in deep pipelines, and does what comes after the product (gate, residual) in registers. Accumulated in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.kernels.launch import launch_options, precision, wait_for_inputs

PLAIN, ADDED, GATED = 0, 1, 2  # what comes after a product


@dataclass(frozen=True)
class Tiles:
    """How a product is cut."""

    columns: int  # of the output, and rows of the weights, per program
    inner: int  # of the sum, loaded at once
    warps: int
    stages: int
    splits: int = 1  # parts of the sum

    def rows(self, count: int) -> int:
        """Rows of x per program: the tensor cores' least, or as many as there are."""
        return max(16, min(64, triton.next_power_of_2(count)))


def split_product(x: Tensor, weight: Tensor, tiles: Tiles) -> Tensor:
    """Parts of x W^T over the sum's dimension; whoever reads them adds them up.

    Args:
        x: [rows, inner].
        weight: [columns, inner].
        tiles: With the number of parts.

    Returns:
        [parts, rows, columns] float32.
    """
    parts = x.new_empty(tiles.splits, len(x), len(weight), dtype=torch.float32)
    _launch(x, weight, parts, x, len(weight), PLAIN, tiles)
    return parts


def product(x: Tensor, weight: Tensor, tiles: Tiles, residual: Tensor | None = None) -> Tensor:
    """x W^T, as it is or added to a residual.

    Args:
        x: [rows, inner].
        weight: [columns, inner].
        tiles: With one part.
        residual: [rows, columns] or None.

    Returns:
        [rows, columns] in the dtype of x.
    """
    result = x.new_empty(len(x), len(weight))
    if residual is None:
        _launch(x, weight, result, x, len(weight), PLAIN, tiles)
    else:
        _launch(x, weight, result, residual, len(weight), ADDED, tiles)
    return result


def gated_product(x: Tensor, weight: Tensor, tiles: Tiles) -> Tensor:
    """silu(x G^T) * (x U^T).

    Args:
        x: [rows, inner].
        weight: [2 columns, inner]: G above U.
        tiles: With one part; `columns` of each of both.

    Returns:
        [rows, columns] in the dtype of x.
    """
    columns = len(weight) // 2
    result = x.new_empty(len(x), columns)
    _launch(x, weight, result, x, columns, GATED, tiles)
    return result


def _launch(
    x: Tensor,
    weight: Tensor,
    result: Tensor,
    residual: Tensor,
    columns: int,
    after: int,
    tiles: Tiles,
) -> None:
    rows, inner = x.shape
    height, step = tiles.rows(rows), min(tiles.inner, triton.next_power_of_2(inner))
    _product_kernel[(triton.cdiv(columns, tiles.columns), triton.cdiv(rows, height), tiles.splits)](
        x,
        weight,
        result,
        residual,
        rows,
        columns,
        x.stride(0),
        weight.stride(0),
        INNER=inner,
        AFTER=after,
        HEIGHT=height,
        COLUMNS=tiles.columns,
        STEP=step,
        SPLITS=tiles.splits,
        PRECISION=precision(x.dtype),
        num_warps=tiles.warps,
        num_stages=max(2, tiles.stages * 2 // x.element_size()),  # as many bytes in float32
        **launch_options(x.device),
    )


@triton.jit
def _product_kernel(
    x,  # [rows, INNER]
    weight,  # [columns, INNER]; when GATED [2 columns, INNER]
    result,  # [SPLITS, rows, columns]
    residual,  # [rows, columns]
    rows,
    columns,
    x_row,  # strides
    weight_row,
    INNER: tl.constexpr,
    AFTER: tl.constexpr,
    HEIGHT: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    split = tl.program_id(2)
    STEPS: tl.constexpr = (INNER + STEP - 1) // STEP
    WHOLE: tl.constexpr = INNER % STEP == 0
    first = split * STEPS // SPLITS
    end = (split + 1) * STEPS // SPLITS
    row = tl.program_id(1) * HEIGHT + tl.arange(0, HEIGHT)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.arange(0, STEP)
    row_exists = (row < rows)[:, None]
    column_exists = (column < columns)[:, None]
    x_at = x + row[:, None] * x_row + step[None, :]
    weight_at = weight + column[:, None].to(tl.int64) * weight_row + step[None, :]
    other_half = tl.cast(columns, tl.int64) * weight_row
    wait_for_inputs(DEPENDENT)

    total = tl.zeros([HEIGHT, COLUMNS], tl.float32)
    gate_up = tl.zeros([HEIGHT, COLUMNS], tl.float32)
    for number in range(first, end):
        at = number * STEP
        x_mask = row_exists
        weight_mask = column_exists
        if not WHOLE:
            x_mask = x_mask & (at + step < INNER)[None, :]
            weight_mask = weight_mask & (at + step < INNER)[None, :]
        some_x = tl.load(x_at + at, mask=x_mask, other=0.0)
        some_weight = tl.load(weight_at + at, mask=weight_mask, other=0.0)
        total = tl.dot(some_x, tl.trans(some_weight), total, input_precision=PRECISION)
        if AFTER == 2:
            some_up = tl.load(weight_at + other_half + at, mask=weight_mask, other=0.0)
            gate_up = tl.dot(some_x, tl.trans(some_up), gate_up, input_precision=PRECISION)

    to = split.to(tl.int64) * rows * columns + row[:, None] * columns + column[None, :]
    mask = row_exists & (column < columns)[None, :]
    if AFTER == 1:
        total += tl.load(residual + to, mask=mask, other=0.0).to(tl.float32)
    if AFTER == 2:
        total = total / (1.0 + tl.exp(-total)) * gate_up
    tl.store(result + to, total.to(result.dtype.element_ty), mask=mask)
