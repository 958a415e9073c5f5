"""What a text layer is made of, in plain torch; kernel_pieces.py has the same as kernels for CUDA."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from torch import Tensor
from torch.nn import functional

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.model.pointwise import gated, norm, norm_and_rotate

Matrix = TypeVar("Matrix")  # how the weights of a product are kept


class Pieces(Protocol[Matrix]):
    """Hidden states are the residual stream [T, size]; `normed` says the weight of an RMSNorm in front of a product."""

    def stored(self, weight: Tensor) -> Matrix:
        """A product's weight as it is kept."""

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Matrix) -> Tensor:
        """norm(x) W^T of weight [columns, size]: [T, columns]."""

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Matrix) -> Any:
        """silu(norm(x) G^T) * (norm(x) U^T) of weight [2 columns, size], G above U: for `added_product`."""

    def added_product(self, hidden: Tensor, x: Any, weight: Matrix) -> Tensor:
        """The residual stream, which may be overwritten, and x W^T of [T, inner] and [size, inner].

        x is a tensor, or what `gated_product` gave.
        """

    def norm_and_rotate(
        self,
        states: Tensor,
        head_norms: tuple[Tensor, Tensor],
        eps: float,
        rotary: tuple[Tensor, Tensor],
        cache: LayerCache,
        slots: Tensor,
    ) -> Tensor:
        """Norm and rotary embedding by head; keys and values are written into the cache.

        Args:
            states: [T, (heads + 2 kv_heads) dim]: queries, keys and values.
            head_norms: Of queries and of keys [dim].
            eps: Of the norms.
            rotary: Cosines and sines [T, dim].
            cache: A layer's.
            slots: [T] int64: block times block size plus place, of each token.

        Returns:
            Queries [T, heads, dim].
        """


class PlainRotation:
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
        kv_heads, dim = cache.keys.shape[2:]
        states = states.unflatten(-1, (-1, dim))
        query, key, value = states.split((states.shape[1] - 2 * kv_heads, kv_heads, kv_heads), 1)
        cache.keys.flatten(0, 1).index_copy_(0, slots, _turned(key, head_norms[1], eps, rotary))
        cache.values.flatten(0, 1).index_copy_(0, slots, value)
        return _turned(query, head_norms[0], eps, rotary)


class PlainPieces(PlainRotation):
    """Any device, and any number of tokens."""

    def stored(self, weight: Tensor) -> Tensor:
        """As it is."""
        return weight

    def product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Tensor) -> Tensor:
        """See Pieces."""
        return functional.linear(norm(hidden, normed, eps), weight)

    def gated_product(self, hidden: Tensor, normed: Tensor, eps: float, weight: Tensor) -> Tensor:
        """See Pieces."""
        gate, up = functional.linear(norm(hidden, normed, eps), weight).chunk(2, -1)
        return gated(gate, up)

    def added_product(self, hidden: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        return hidden + functional.linear(x, weight)


def _turned(states: Tensor, weight: Tensor, eps: float, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Norm and rotary embedding of [T, heads, dim], by the expert's formula for one batch of one sample."""
    cosines, sines = rotary
    return norm_and_rotate(states[None, None], weight, eps, cosines[None], sines[None])[0, 0]
