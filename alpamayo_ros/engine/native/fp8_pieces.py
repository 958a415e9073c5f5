"""The pieces of a text layer with FP8 weights, on CUDA: one copy of them serves prompts and single tokens.

Prompts, and rows side by side, are rounded to FP8 as well, token by token, so that products run on the FP8 tensor cores
at twice bfloat16's rate. A single token stays bfloat16: its products take as long as the weights' bytes.
"""

from __future__ import annotations

from torch import Tensor

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.fp8_product import product, raw_product, stored
from alpamayo_ros.engine.kernels.fp8_matvec import gated_linear, linear
from alpamayo_ros.engine.kernels.fp8_rows import add_scaled, gate_and_quantize, norm_and_quantize, quantize
from alpamayo_ros.engine.native.kernel_pieces import KernelPieces


class Fp8Pieces:
    """See Pieces. Hidden states are bfloat16."""

    def __init__(self) -> None:
        self._kernels = KernelPieces()

    def stored(self, weight: Tensor) -> Fp8Rows:
        """In FP8. Raises ConfigurationError for a size that products in FP8 don't take."""
        return stored(weight)

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        if len(hidden) == 1:
            return linear(hidden, weight, normed, eps)
        return product(norm_and_quantize(hidden, None, normed, eps), weight)

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Tensor | Fp8Rows:
        """See Pieces; of several rows in FP8."""
        if len(hidden) == 1:
            return gated_linear(hidden, weight, normed, eps)
        return gate_and_quantize(raw_product(norm_and_quantize(hidden, None, normed, eps), weight))

    def added_product(self, hidden: Tensor, x: Tensor | Fp8Rows, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        if len(hidden) > 1:
            return add_scaled(hidden, raw_product(quantize(x) if isinstance(x, Tensor) else x, weight))
        assert isinstance(x, Tensor)
        return linear(x, weight, residual=hidden)

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
