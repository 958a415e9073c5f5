"""The pieces of a text layer with FP8 weights, on CUDA: one copy of them serves prompts and single tokens.

Prompts, and rows side by side, are rounded to FP8 as well, token by token, so that products run on the FP8 tensor cores
at twice bfloat16's rate. A single token stays bfloat16: its products take as long as the weights' bytes.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.kernels.fp8_matvec import gated_linear, linear
from alpamayo_ros.engine.kernels.fp8_rows import add_scaled, gate_and_quantize, norm_and_quantize, quantize
from alpamayo_ros.engine.native.kernel_pieces import KernelPieces

MULTIPLE = 16  # of both sizes of a weight


class Fp8Pieces:
    """See Pieces. Hidden states are bfloat16."""

    def __init__(self) -> None:
        self._kernels = KernelPieces()

    def stored(self, weight: Tensor) -> Fp8Rows:
        """In FP8.

        Raises:
            ConfigurationError: a size that products in FP8 don't take.
        """
        if weight.shape[0] % MULTIPLE or weight.shape[1] % MULTIPLE:
            raise ConfigurationError(
                f"engine.quantization is 'fp8', and a layer's matrix has the size {list(weight.shape)}; products in "
                f"FP8 take multiples of {MULTIPLE}: set it to none"
            )
        return Fp8Rows.of(weight)

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        if len(hidden) == 1:
            return linear(hidden, weight, normed, eps)
        return scaled_product(norm_and_quantize(hidden, normed, eps), weight)

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Tensor | Fp8Rows:
        """See Pieces."""
        if len(hidden) == 1:
            return gated_linear(hidden, weight, normed, eps)
        rows = norm_and_quantize(hidden, normed, eps)
        return gate_and_quantize(raw_product(rows, weight), rows.scales, weight.scales)

    def added_product(self, hidden: Tensor, x: Tensor | Fp8Rows, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        if len(hidden) == 1:
            assert isinstance(x, Tensor)
            return linear(x, weight, residual=hidden)
        rows = quantize(x) if isinstance(x, Tensor) else x
        return add_scaled(hidden, raw_product(rows, weight), rows.scales, weight.scales)

    def norm_and_rotate(
        self,
        states: Tensor,
        head_norms: tuple[Tensor, Tensor],
        eps: float,
        rotary: tuple[Tensor, Tensor],
        cache: LayerCache,
        slots: Tensor,
    ) -> Tensor:
        """See Pieces."""
        return self._kernels.norm_and_rotate(states, head_norms, eps, rotary, cache, slots)


def scaled_product(rows: Fp8Rows, weight: Fp8Rows) -> Tensor:
    """x W^T of FP8 x [T, inner] and W [columns, inner]: [T, columns] bfloat16."""
    return _product(rows, weight, rows.scales, weight.scales.T)


def raw_product(rows: Fp8Rows, weight: Fp8Rows) -> Tensor:
    """The same without the scales: cuBLAS is faster than PyTorch's kernel for scales by row."""
    one = _one(rows.values.device)
    return _product(rows, weight, one, one)


def _product(rows: Fp8Rows, weight: Fp8Rows, row_scales: Tensor, column_scales: Tensor) -> Tensor:
    return torch._scaled_mm(
        rows.values, weight.values.T, row_scales, column_scales, out_dtype=torch.bfloat16, use_fast_accum=True
    )


@cache
def _one(device: torch.device) -> Tensor:
    return torch.ones((), device=device)
