"""The products of a layer with FP8 weights: own kernels for a few rows, PyTorch's for many.

Few rows are bound by the weights' bytes, many by arithmetic. With the scales in PyTorch's kernel a product takes up to
a tenth longer than cuBLAS without them, so they are left to the residual's kernel where there is one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alpamayo_ros.engine import fp8_product
from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.kernels import fp8_skinny
from alpamayo_ros.engine.kernels.fp8_rows import add_scaled, gate_and_quantize, quantize

MOST_FEW_ROWS = 64  # those of one trajectory, and of captured steps


def product(x: Fp8Rows, weight: Fp8Rows, dtype: torch.dtype) -> Tensor:
    """x W^T of x [rows, inner] and W [columns, inner]: [rows, columns], of few rows in `dtype`, else in bfloat16."""
    if _are_few(x):
        return fp8_skinny.product(x, weight, dtype)
    return fp8_product.product(x, weight)


def gated_product(x: Fp8Rows, weight: Fp8Rows, dtype: torch.dtype) -> Fp8Rows:
    """silu(x G^T) * (x U^T) of W [2 columns, inner], G above U, rounded: [rows, columns]."""
    if _are_few(x):
        return quantize(fp8_skinny.gated_product(x, weight, dtype))
    return gate_and_quantize(fp8_product.product(x, weight))


def add_product(hidden: Tensor, x: Fp8Rows, weight: Fp8Rows) -> Tensor:
    """Add x W^T to the residual stream [rows, columns] in place; gives the residual stream."""
    if _are_few(x):
        return fp8_skinny.add_product(hidden, x, weight)
    return add_scaled(hidden, fp8_product.raw_product(x, weight))


def _are_few(x: Fp8Rows) -> bool:
    return len(x.values) <= MOST_FEW_ROWS
