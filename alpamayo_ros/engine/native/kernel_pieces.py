"""The pieces of a text layer as kernels: cuBLAS for prompts, own products that stream the weights for few tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.kernels.between_products import Destination, HeadNorms, add_and_norm, gate, norm_and_rotate
from alpamayo_ros.engine.kernels.matvec import gated_linear, linear

MOST_FEW_TOKENS = 64  # above, cuBLAS is the faster one


class KernelPieces:
    """See Pieces."""

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Tensor) -> Tensor:
        """See Pieces."""
        if _are_few(hidden):
            return linear(hidden, weight, normed, eps)
        return functional.linear(add_and_norm(hidden, None, normed, eps), weight)

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Tensor) -> Tensor:
        """See Pieces."""
        if _are_few(hidden):
            return gated_linear(hidden, weight, normed, eps)
        return gate(functional.linear(add_and_norm(hidden, None, normed, eps), weight))

    def added_product(self, hidden: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        if _are_few(hidden):
            return linear(x, weight, residual=hidden)
        return torch.addmm(hidden, x, weight.T)

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


def _are_few(x: Tensor) -> bool:
    return len(x) <= MOST_FEW_TOKENS and x.dtype != torch.float32
