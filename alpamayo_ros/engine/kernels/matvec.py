"""The products of decoding: one row, or up to 64, with every weight of the backbone, at the speed of its memory.

One row needs no tensor cores: each program keeps some rows of the weights in flight and adds products up in float32.
The norm in front of such a product, and the residual or the gate behind it, are part of its kernel. More rows are
`skinny_product`, behind a norm of their own: inside of it, every program would normalise all rows again.
"""

from __future__ import annotations

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.kernels import skinny_product
from alpamayo_ros.engine.kernels.between_products import add_and_norm
from alpamayo_ros.engine.kernels.launch import launch_options, wait_for_inputs
from alpamayo_ros.engine.kernels.skinny_product import ADDED, GATED, PLAIN, Tiles


@dataclass(frozen=True)
class MatvecTiles:
    """How a product with one row is cut."""

    columns: int  # of the output, and rows of the weights, per program
    inner: int  # of the sum, loaded at once
    warps: int


# Measured at full size on an H200.
FEW_COLUMNS = MatvecTiles(columns=2, inner=2048, warps=4)
SOME_COLUMNS = MatvecTiles(columns=2, inner=2048, warps=8)
MANY_COLUMNS = MatvecTiles(columns=2, inner=4096, warps=8)
VOCABULARY = MatvecTiles(columns=4, inner=4096, warps=4)
ROWS = Tiles(columns=32, inner=128, warps=4, stages=5)
ROWS_GATED = Tiles(columns=32, inner=128, warps=4, stages=4)


def linear(
    x: Tensor, weight: Tensor, norm: Tensor | None = None, eps: float = 0.0, residual: Tensor | None = None
) -> Tensor:
    """x W^T, of x as it is or normalised (RMSNorm), as it is or added to a residual.

    Args:
        x: [rows, inner].
        weight: [columns, inner].
        norm: [inner], the norm's weight, or None.
        eps: Its epsilon.
        residual: [rows, columns] or None.

    Returns:
        [rows, columns] in the dtype of x.
    """
    if len(x) > 1:
        x = x if norm is None else add_and_norm(x, None, norm, eps)
        return skinny_product.product(x, weight, ROWS, residual)
    return matvec(x, weight, _tiles(len(weight)), norm, eps, residual)


def gated_linear(x: Tensor, weight: Tensor, norm: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """silu(x G^T) * (x U^T), of x as it is or normalised.

    Args:
        x: [rows, inner].
        weight: [2 columns, inner]: G above U.
        norm, eps: As for `linear`.

    Returns:
        [rows, columns] in the dtype of x.
    """
    if len(x) > 1:
        x = x if norm is None else add_and_norm(x, None, norm, eps)
        return skinny_product.gated_product(x, weight, ROWS_GATED)
    return gated_matvec(x, weight, _tiles(len(weight)), norm, eps)


def _tiles(columns: int) -> MatvecTiles:
    """By how many columns there are to fill the GPU with."""
    if columns <= 4096:
        return FEW_COLUMNS
    if columns <= 8192:
        return SOME_COLUMNS
    return MANY_COLUMNS if columns < 65536 else VOCABULARY


def matvec(
    x: Tensor,
    weight: Tensor,
    tiles: MatvecTiles,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
) -> Tensor:
    """`linear` for one row, cut as asked."""
    result = x.new_empty(1, len(weight))
    _launch(x, weight, result, residual, norm, eps, PLAIN if residual is None else ADDED, tiles)
    return result


def gated_matvec(x: Tensor, weight: Tensor, tiles: MatvecTiles, norm: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """`gated_linear` for one row, cut as asked."""
    result = x.new_empty(1, len(weight) // 2)
    _launch(x, weight, result, None, norm, eps, GATED, tiles)
    return result


def _launch(
    x: Tensor,
    weight: Tensor,
    result: Tensor,
    residual: Tensor | None,
    norm: Tensor | None,
    eps: float,
    after: int,
    tiles: MatvecTiles,
) -> None:
    columns, inner = result.shape[1], x.shape[1]
    step = min(tiles.inner, triton.next_power_of_2(inner))
    _matvec_kernel[(triton.cdiv(columns, tiles.columns),)](
        x,
        weight,
        result,
        x if residual is None else residual,
        x if norm is None else norm,
        columns,
        weight.stride(0),
        eps,
        INNER=inner,
        NORMED=norm is not None,
        AFTER=after,
        COLUMNS=tiles.columns,
        STEP=step,
        num_warps=tiles.warps,
        **launch_options(x.device),
    )


@triton.jit
def _matvec_kernel(
    x,  # [INNER]
    weight,  # [columns, INNER]; when gated [2 columns, INNER]
    result,  # [columns]
    residual,  # [columns]
    norm,  # [INNER]
    columns,
    weight_row,  # stride
    eps,
    INNER: tl.constexpr,
    NORMED: tl.constexpr,
    AFTER: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.arange(0, STEP)
    exists = (column < columns)[:, None]
    at = weight + column[:, None].to(tl.int64) * weight_row + step[None, :]
    other_half = tl.cast(columns, tl.int64) * weight_row
    # The first weights are on their way while the kernel in front ends; each further load is one step ahead.
    some = tl.load(at, mask=exists & (step < INNER)[None, :], other=0.0)
    some_up = some
    if AFTER == 2:
        some_up = tl.load(at + other_half, mask=exists & (step < INNER)[None, :], other=0.0)
    wait_for_inputs(DEPENDENT)

    total = tl.zeros([COLUMNS, STEP], tl.float32)
    total_up = tl.zeros([COLUMNS, STEP], tl.float32)
    squares = tl.zeros([STEP], tl.float32)
    for start in range(0, INNER, STEP):
        inside = start + step < INNER
        some_x = tl.load(x + start + step, mask=inside, other=0.0).to(tl.float32)
        if NORMED:
            squares += some_x * some_x
            some_x = some_x * tl.load(norm + start + step, mask=inside, other=0.0).to(tl.float32)
        later = exists & (start + STEP + step < INNER)[None, :]
        then = tl.load(at + start + STEP, mask=later, other=0.0)
        total += some.to(tl.float32) * some_x[None, :]
        some = then
        if AFTER == 2:
            then_up = tl.load(at + other_half + start + STEP, mask=later, other=0.0)
            total_up += some_up.to(tl.float32) * some_x[None, :]
            some_up = then_up

    y = tl.sum(total, 1)
    scale = 1.0
    if NORMED:
        scale = tl.rsqrt(tl.sum(squares, 0) / INNER + eps)
    y = y * scale
    mask = column < columns
    if AFTER == 1:
        y += tl.load(residual + column, mask=mask, other=0.0).to(tl.float32)
    if AFTER == 2:
        y = y / (1.0 + tl.exp(-y)) * (tl.sum(total_up, 1) * scale)
    tl.store(result + column, y.to(result.dtype.element_ty), mask=mask)
