"""The products of decoding one token with FP8 weights, half the bytes of bfloat16; the token itself isn't rounded.

As in matvec.py, each program keeps some rows of the weights in flight, and the norm in front and the residual or the
gate behind are part of the kernel. The scale of a row of the weights is multiplied in at the end.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.kernels.launch import launch_options, wait_for_inputs
from alpamayo_ros.engine.kernels.matvec import MatvecTiles
from alpamayo_ros.engine.kernels.skinny_product import ADDED, GATED, PLAIN

FEW_COLUMNS = MatvecTiles(columns=4, inner=2048, warps=4)
MANY_COLUMNS = MatvecTiles(columns=8, inner=1024, warps=4)


def linear(
    x: Tensor,
    weight: Fp8Rows,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    tiles: MatvecTiles | None = None,
) -> Tensor:
    """x W^T of one row x, as it is or normalised (RMSNorm), as it is or added to a residual.

    Args:
        x: [1, inner].
        weight: [columns, inner].
        norm: [inner], the norm's weight, or None.
        eps: Its epsilon.
        residual: [1, columns] or None.
        tiles: How the product is cut; None: as measured to be best.

    Returns:
        [1, columns] in the dtype of x.
    """
    result = x.new_empty(1, len(weight.values))
    _launch(x, weight, result, residual, norm, eps, PLAIN if residual is None else ADDED, tiles)
    return result


def gated_linear(
    x: Tensor, weight: Fp8Rows, norm: Tensor | None = None, eps: float = 0.0, tiles: MatvecTiles | None = None
) -> Tensor:
    """silu(x G^T) * (x U^T) of one row x; the weight [2 columns, inner] has G above U. See `linear`."""
    result = x.new_empty(1, len(weight.values) // 2)
    _launch(x, weight, result, None, norm, eps, GATED, tiles)
    return result


def _launch(
    x: Tensor,
    weight: Fp8Rows,
    result: Tensor,
    residual: Tensor | None,
    norm: Tensor | None,
    eps: float,
    after: int,
    tiles: MatvecTiles | None,
) -> None:
    columns, inner = result.shape[1], x.shape[1]
    if tiles is None:
        tiles = FEW_COLUMNS if columns <= 8192 else MANY_COLUMNS
    _fp8_matvec_kernel[(triton.cdiv(columns, tiles.columns),)](
        x,
        weight.values,
        weight.scales,
        result,
        x if residual is None else residual,
        x if norm is None else norm,
        columns,
        eps,
        INNER=inner,
        NORMED=norm is not None,
        AFTER=after,
        COLUMNS=tiles.columns,
        STEP=min(tiles.inner, triton.next_power_of_2(inner)),
        num_warps=tiles.warps,
        **launch_options(x.device),
    )


@triton.jit
def _fp8_matvec_kernel(
    x,  # [INNER]
    weight,  # [columns, INNER]; when gated [2 columns, INNER]
    scales,  # of its rows
    result,  # [columns]
    residual,  # [columns]
    norm,  # [INNER]
    columns,
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
    at = weight + column[:, None].to(tl.int64) * INNER + step[None, :]
    other_half = tl.cast(columns, tl.int64) * INNER
    # The first weights are on their way while the kernel in front ends; each further load is one step ahead.
    some = tl.load(at, mask=exists & (step < INNER)[None, :], other=0.0)
    some_up = some
    if AFTER == 2:
        some_up = tl.load(at + other_half, mask=exists & (step < INNER)[None, :], other=0.0)
    mask = column < columns
    factor = tl.load(scales + column, mask=mask, other=0.0)
    factor_up = factor
    if AFTER == 2:
        factor_up = tl.load(scales + columns + column, mask=mask, other=0.0)
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

    if NORMED:
        scale = tl.rsqrt(tl.sum(squares, 0) / INNER + eps)
        factor = factor * scale
        factor_up = factor_up * scale
    y = tl.sum(total, 1) * factor
    if AFTER == 1:
        y += tl.load(residual + column, mask=mask, other=0.0).to(tl.float32)
    if AFTER == 2:
        y = y / (1.0 + tl.exp(-y)) * (tl.sum(total_up, 1) * factor_up)
    tl.store(result + column, y.to(result.dtype.element_ty), mask=mask)
