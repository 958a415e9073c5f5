"""What a text layer is made of, in plain torch; kernel_pieces.py has the same as kernels for CUDA."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from alpamayo_ros.engine.vllm.kv_layout import LayerCache
from alpamayo_ros.model.pointwise import norm


class Pieces(Protocol):
    """Products come as [parts, T, columns], which whoever reads them adds up."""

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """x W^T of [T, inner] and [columns, inner]."""

    def gated_product(self, x: Tensor, weight: Tensor) -> Tensor:
        """silu(x G^T) * (x U^T) [T, columns] of [2 columns, inner], G above U."""

    def add_and_norm(self, hidden: Tensor, parts: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """Add a product to hidden [T, size] in place, if there is one, and give its RMSNorm."""

    def norm_and_rotate(
        self,
        parts: Tensor,
        head_norms: tuple[Tensor, Tensor],
        eps: float,
        rotary: tuple[Tensor, Tensor],
        cache: LayerCache,
        slots: Tensor,
    ) -> Tensor:
        """Norm and rotary embedding by head; keys and values are written into the cache.

        Args:
            parts: [parts, T, (heads + 2 kv_heads) dim]: queries, keys and values.
            head_norms: Of queries and of keys [dim].
            eps: Of the norms.
            rotary: Cosines and sines [T, dim].
            cache: A layer's.
            slots: [T] int64: block times block size plus place, of each token.

        Returns:
            Queries [T, heads, dim].
        """

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """x W^T as float32 [T, V]."""


class PlainPieces:
    """Any device, and any number of tokens."""

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        return functional.linear(x, weight)[None]

    def gated_product(self, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        gate, up = functional.linear(x, weight).chunk(2, -1)
        return functional.silu(gate) * up

    def add_and_norm(self, hidden: Tensor, parts: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """See Pieces."""
        if parts is not None:
            hidden += parts.sum(0)
        return norm(hidden, weight, eps)

    def norm_and_rotate(
        self,
        parts: Tensor,
        head_norms: tuple[Tensor, Tensor],
        eps: float,
        rotary: tuple[Tensor, Tensor],
        cache: LayerCache,
        slots: Tensor,
    ) -> Tensor:
        """See Pieces."""
        kv_heads, dim = cache.keys.shape[2:]
        states = parts.sum(0).unflatten(-1, (-1, dim))
        query, key, value = states.split((states.shape[1] - 2 * kv_heads, kv_heads, kv_heads), 1)
        cache.keys.flatten(0, 1).index_copy_(0, slots, _rotate(norm(key, head_norms[1], eps), *rotary))
        cache.values.flatten(0, 1).index_copy_(0, slots, value)
        return _rotate(norm(query, head_norms[0], eps), *rotary)

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        return functional.linear(x, weight).float()


def _rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """A head's halves turn as pairs: [T, heads, dim]."""
    first, second = states.chunk(2, -1)
    return states * cosines[:, None] + torch.cat((-second, first), -1) * sines[:, None]
