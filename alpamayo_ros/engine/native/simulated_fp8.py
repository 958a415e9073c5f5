"""The pieces of a text layer with FP8 weights where there are no products in FP8: their numbers, computed in full.

It is for tests, and for how far FP8 answers are from exact ones; it is no faster than exact layers.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.engine.native.pieces import PlainRotation
from alpamayo_ros.model.pointwise import gated, norm


class SimulatedFp8Pieces(PlainRotation):
    """See Pieces. As on a GPU, weights are FP8, and every token is rounded to FP8 before a product."""

    def stored(self, weight: Tensor) -> Fp8Rows:
        """In FP8."""
        return Fp8Rows.of(weight)

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        return _product(norm(hidden, normed, eps), weight)

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        gate, up = self.product(hidden, normed, eps, weight).chunk(2, -1)
        return gated(gate, up)

    def added_product(self, hidden: Tensor, x: Tensor, weight: Fp8Rows) -> Tensor:
        """See Pieces."""
        return hidden + _product(x, weight)


def _product(x: Tensor, weight: Fp8Rows) -> Tensor:
    return functional.linear(Fp8Rows.of(x).numbers(x.dtype), weight.numbers(x.dtype))
