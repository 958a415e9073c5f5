"""The pieces of a text layer as kernels: cuBLAS for prompts and rows side by side, own products for a single token.

cuBLAS streams the weights of a layer for 2 to 64 rows nearly as fast as for one; only a product as wide as the
vocabulary it leaves to others. For one row the norm, the residual and the gate are part of the products.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.kernels.between_products import Destination, HeadNorms, add_and_norm, gate, norm_and_rotate
from alpamayo_ros.engine.kernels.matvec import gated_linear, linear
from alpamayo_ros.engine.kernels.skinny_product import Tiles, product

WIDE = Tiles(columns=64, inner=64, warps=4, stages=6)  # measured at full size on an H200
WIDE_COLUMNS = 65536  # of the output, from here on
MOST_WIDE_ROWS = 64


class KernelRotation:
    """Norm and rotary embedding by head: the same however the weights of products are kept."""

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
        cosines, sines = (each[None] for each in rotary)
        to = Destination(cache.keys, cache.values, slots)
        return norm_and_rotate(states[None], HeadNorms(*head_norms, eps), cosines, sines, 1, to)


class KernelPieces(KernelRotation):
    """See Pieces."""

    def stored(self, weight: Tensor) -> Tensor:
        """As it is."""
        return weight

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Tensor) -> Tensor:
        """See Pieces."""
        if _is_one(hidden):
            return linear(hidden, weight, normed, eps)
        states = add_and_norm(hidden, None, normed, eps)
        if len(weight) >= WIDE_COLUMNS and len(hidden) <= MOST_WIDE_ROWS and hidden.dtype != torch.float32:
            return product(states, weight, WIDE)
        return functional.linear(states, weight)

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Tensor) -> Tensor:
        """See Pieces."""
        if _is_one(hidden):
            return gated_linear(hidden, weight, normed, eps)
        return gate(functional.linear(add_and_norm(hidden, None, normed, eps), weight))

    def added_product(self, hidden: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        if _is_one(hidden):
            return linear(x, weight, residual=hidden)
        return hidden.addmm_(x, weight.T)


def _is_one(x: Tensor) -> bool:
    return len(x) == 1 and x.dtype != torch.float32
