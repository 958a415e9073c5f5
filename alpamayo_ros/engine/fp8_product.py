"""Products of FP8 matrices on the FP8 tensor cores, with bfloat16 results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.fp8 import Fp8Rows

MULTIPLE = 16  # of both sizes of a weight


@dataclass(frozen=True, eq=False)
class Fp8Product:
    """x W^T of FP8 values alone: each number still lacks the scale of its row and that of its column.

    bfloat16 has the range for that, and loses nothing more by it. cuBLAS computes it faster than PyTorch's kernel for
    scales by row does the whole product, and who reads it next multiplies by the scales on the way.
    """

    values: Tensor  # [rows, columns] bfloat16
    rows: Tensor  # [rows, 1] float32, the scales of x
    columns: Tensor  # [columns, 1] float32, those of W


def stored(weight: Tensor) -> Fp8Rows:
    """A layer's matrix [columns, inner] in FP8.

    Raises:
        ConfigurationError: a size that products in FP8 don't take.
    """
    if weight.shape[0] % MULTIPLE or weight.shape[1] % MULTIPLE:
        raise ConfigurationError(
            f"engine.quantization is 'fp8', and a layer's matrix has the size {list(weight.shape)}; products in FP8 "
            f"take multiples of {MULTIPLE}: set it to none"
        )
    return Fp8Rows.of(weight)


def product(x: Fp8Rows, weight: Fp8Rows) -> Tensor:
    """x W^T of x [rows, inner] and W [columns, inner]: [rows, columns] bfloat16."""
    return _multiply(x, weight, x.scales, weight.scales.T)


def raw_product(x: Fp8Rows, weight: Fp8Rows) -> Fp8Product:
    """The same without the scales."""
    one = _one(x.values.device)
    return Fp8Product(_multiply(x, weight, one, one), x.scales, weight.scales)


def _multiply(x: Fp8Rows, weight: Fp8Rows, rows: Tensor, columns: Tensor) -> Tensor:
    return torch._scaled_mm(
        x.values, weight.values.T, rows, columns, out_dtype=torch.bfloat16, use_fast_accum=x.values.is_cuda
    )


@cache
def _one(device: torch.device) -> Tensor:
    return torch.ones((), device=device)
