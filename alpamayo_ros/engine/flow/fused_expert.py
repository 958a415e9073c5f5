"""The action expert for a GPU: the numbers of model/expert.py in nine kernels a layer instead of some fifty.

Queries, keys and values are one product, gate and up another; norms, residual, rotation and gate are a kernel each or
part of the product in front. One trajectory is 64 rows, bound by the 127 MB of a layer's weights: products for few rows
read those in full pipelines. More rows are bound by arithmetic, where cuBLAS is at its best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from alpamayo_ros.engine.kernels.between_products import (
    Destination,
    HeadNorms,
    add_and_norm,
    gate,
    norm_and_rotate,
)
from alpamayo_ros.engine.kernels.skinny_product import Tiles, gated_product, split_product
from alpamayo_ros.model.expert import Context, Expert, ExpertLayer

MOST_FEW_ROWS = 64  # above, cuBLAS is the faster one


@dataclass(frozen=True)
class LayerTiles:
    """How a layer's products are cut when there are few rows."""

    qkv: Tiles
    out: Tiles
    gate_up: Tiles
    down: Tiles


# Measured at full size on an H200: a program for nearly every multiprocessor.
FULL_SIZE = LayerTiles(
    qkv=Tiles(columns=32, inner=128, warps=4, stages=6),
    out=Tiles(columns=32, inner=64, warps=4, stages=4, splits=4),
    gate_up=Tiles(columns=64, inner=64, warps=4, stages=5),
    down=Tiles(columns=128, inner=64, warps=8, stages=5, splits=8),
)


Weight = TypeVar("Weight")


@dataclass(frozen=True, eq=False)
class FusedLayer(Generic[Weight]):
    """A layer's weights, kept as matrices or otherwise; what has the same factor is one."""

    qkv: Weight  # [(heads + 2 kv_heads) dim, size]
    out: Weight  # [size, heads dim]
    gate_up: Weight  # [2 inner, size]
    down: Weight  # [size, inner]
    first_norm: Tensor  # [size]
    second_norm: Tensor
    head_norms: HeadNorms
    kv_heads: int

    @classmethod
    def of(cls, layer: ExpertLayer, kept: Callable[[Tensor], Weight]) -> FusedLayer[Weight]:
        """Join a layer's weights; it keeps working, with views of them, so that none is in memory twice.

        Args:
            layer: Whose weights are used.
            kept: A weight as it is kept.
        """
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            qkv=kept(_joined(attention.q_proj, attention.k_proj, attention.v_proj)),
            out=kept(attention.o_proj.weight.detach()),
            gate_up=kept(_joined(mlp.gate_proj, mlp.up_proj)),
            down=kept(mlp.down_proj.weight.detach()),
            first_norm=layer.input_layernorm.weight.detach(),
            second_norm=layer.post_attention_layernorm.weight.detach(),
            head_norms=HeadNorms(
                attention.q_norm.weight.detach(), attention.k_norm.weight.detach(), attention.q_norm.eps
            ),
            kv_heads=attention.kv_heads,
        )


class FusedExpert:
    """The same function as `Expert.forward`.

    Args:
        expert: Whose weights are used; see `FusedLayer`.
        sum_over_ranks: For an expert that is spread over several devices.
        tiles: How products of few rows are cut.
    """

    def __init__(
        self, expert: Expert, sum_over_ranks: Callable[[Tensor], Tensor] | None = None, tiles: LayerTiles = FULL_SIZE
    ) -> None:
        self.geometry = expert.geometry
        self._layers = [
            FusedLayer.of(layer, lambda weight: weight) for layer in expert.layers if isinstance(layer, ExpertLayer)
        ]
        self._norm = expert.norm.weight.detach()
        self._eps = expert.norm.eps
        self._sum_over_ranks = sum_over_ranks
        self._tiles = tiles

    def __call__(self, embeddings: Tensor, context: Context) -> Tensor:
        """Hidden states after the final norm: [R G, N, hidden_size] in and out."""
        hidden = embeddings.flatten(0, 1) * 1  # a copy by a kernel, which the next can follow early
        few = len(hidden) <= MOST_FEW_ROWS and hidden.dtype != torch.float32
        normed = add_and_norm(hidden, None, self._layers[0].first_norm, self._eps)
        next_norms = [*(layer.first_norm for layer in self._layers[1:]), self._norm]
        for index, (layer, next_norm) in enumerate(zip(self._layers, next_norms, strict=True)):
            mixed = self._attention(index, layer, normed, context, few)
            attended = self._add_or_give(hidden, mixed, layer.out, self._tiles.out, few)
            normed = add_and_norm(hidden, attended, layer.second_norm, self._eps)
            if few:
                inner = gated_product(normed, layer.gate_up, self._tiles.gate_up)
            else:
                inner = gate(functional.linear(normed, layer.gate_up))
            change = self._add_or_give(hidden, inner, layer.down, self._tiles.down, few)
            normed = add_and_norm(hidden, change, next_norm, self._eps)
        return normed.view(embeddings.shape)

    def _attention(self, index: int, layer: FusedLayer, normed: Tensor, context: Context, few: bool) -> Tensor:
        """[T, size] to [T, heads dim]."""
        parts = self._product(normed, layer.qkv, self._tiles.qkv, few)
        return attend(index, layer.head_norms, layer.kv_heads, parts, context)

    def _product(self, x: Tensor, weight: Tensor, tiles: Tiles, few: bool) -> Tensor:
        """As [parts, rows, columns]."""
        return split_product(x, weight, tiles) if few else functional.linear(x, weight)[None]

    def _add_or_give(self, hidden: Tensor, x: Tensor, weight: Tensor, tiles: Tiles, few: bool) -> Tensor | None:
        """A product as [parts, rows, columns], for the next norm to add to the residual stream; None: it is added."""
        if not few and self._sum_over_ranks is None:
            hidden.addmm_(x, weight.t())
            return None
        parts = self._product(x, weight, tiles, few)
        return parts if self._sum_over_ranks is None else self._sum_over_ranks(parts.sum(0))[None]


def attend(index: int, head_norms: HeadNorms, kv_heads: int, parts: Tensor, context: Context) -> Tensor:
    """Attention of layer `index`: queries, keys and values [parts, T, (heads + 2 kv_heads) dim] to [T, heads dim]."""
    rows, tokens, dim = context.cosines.shape
    count, dtype = parts.shape[1], context.cosines.dtype
    own = torch.empty(2, count, 1, kv_heads, dim, dtype=dtype, device=parts.device)
    query = norm_and_rotate(
        parts, head_norms, context.cosines, context.sines, context.samples, Destination(own[0], own[1])
    )
    shape = (rows, context.samples, tokens, -1, dim)
    return context.attend(index, query.view(shape), own[0].view(shape), own[1].view(shape)).reshape(count, -1)


def _joined(*linears: nn.Linear) -> Tensor:
    """Their weights on top of each other in one piece of memory; each gets its part of it."""
    weight = torch.cat([linear.weight.detach() for linear in linears])
    start = 0
    for linear in linears:
        part = weight[start : start + len(linear.weight)]
        linear.weight = nn.Parameter(part, requires_grad=False)
        start += len(part)
    return weight
