"""The pieces of a text layer as kernels: cuBLAS for prompts, weights streamed by own products for few tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from alpamayo_ros.engine.kernels.between_products import Destination, HeadNorms, add_and_norm, gate, norm_and_rotate
from alpamayo_ros.engine.kernels.skinny_product import Tiles, gated_product, product, split_product
from alpamayo_ros.engine.vllm.kv_layout import LayerCache

MOST_FEW_TOKENS = 64  # above, cuBLAS is the faster one
GATED = Tiles(columns=32, inner=128, warps=4, stages=4)
LOGITS = Tiles(columns=64, inner=128, warps=4, stages=4)
PROGRAMS = 384  # that a split product is cut into: about three for every multiprocessor of an H200


class KernelPieces:
    """See Pieces."""

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        if not _are_few(x):
            return functional.linear(x, weight)[None]
        return split_product(x, weight, _split_tiles(len(weight)))

    def gated_product(self, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        return gated_product(x, weight, GATED) if _are_few(x) else gate(functional.linear(x, weight))

    def add_and_norm(self, hidden: Tensor, parts: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """See Pieces."""
        return add_and_norm(hidden, parts, weight, eps)

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
        cosines, sines = (each[None] for each in rotary)
        to = Destination(cache.keys, cache.values, slots)
        return norm_and_rotate(parts, HeadNorms(*head_norms, eps), cosines, sines, 1, to)

    def logits(self, x: Tensor, weight: Tensor) -> Tensor:
        """See Pieces."""
        few = _are_few(x)
        return product(x, weight, LOGITS).float() if few else functional.linear(x, weight).float()


def _are_few(x: Tensor) -> bool:
    return len(x) <= MOST_FEW_TOKENS and x.dtype != torch.float32


def _split_tiles(columns: int) -> Tiles:
    return Tiles(columns=64, inner=128, warps=4, stages=4, splits=max(1, min(8, PROGRAMS // (columns // 64 + 1))))
