"""The pieces of a text layer in FP8, on CUDA. Weights are FP8, and every token is rounded to FP8 before a product."""

from __future__ import annotations

from torch import Tensor

from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.fp8_product import stored
from alpamayo_ros.engine.kernels.fp8_layer import add_product, gated_product, product
from alpamayo_ros.engine.kernels.fp8_rows import norm_and_quantize, quantize
from alpamayo_ros.engine.native.kernel_pieces import KernelRotation


class Fp8Pieces(KernelRotation):
    """See Pieces. Hidden states are bfloat16."""

    def stored(self, weight: Tensor) -> Fp8Rows:
        """In FP8. Raises ConfigurationError for a size that products in FP8 don't take."""
        return stored(weight)

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        return product(norm_and_quantize(hidden, normed, eps), weight, hidden.dtype)

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Fp8Rows:
        """See Pieces; rounded."""
        return gated_product(norm_and_quantize(hidden, normed, eps), weight, hidden.dtype)

    def added_product(self, hidden: Tensor, x: Tensor | Fp8Rows, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        return add_product(hidden, quantize(x) if isinstance(x, Tensor) else x, weight)
