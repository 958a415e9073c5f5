"""Attention of the action tokens: to a prefix in a paged cache, and to those of their own sample.

Nothing is written into the cache and the prefix is copied nowhere. On CUDA kernels do it
(kernels/split_attention.py and sample_attention.py); the plain torch that is here serves a CPU, and is the truth for
tests of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.paged_cache import LayerCache, PagedPrefixes

# query [R, G, N, heads, dim], own key and value [R, G, N, kv_heads, dim] -> [R, G, N, heads, dim]
Attend = Callable[[Tensor, Tensor, Tensor, LayerCache, PagedPrefixes], Tensor]
Partial = tuple[Tensor, Tensor]  # mixed values [R, T, heads, dim], and log-sum-exp [R, T, heads] float32


@dataclass(frozen=True, eq=False)
class PagedContext:
    """What the expert's layers read (model/expert.py, `Context`)."""

    prefixes: PagedPrefixes
    layers: list[LayerCache]
    samples: int  # G, of each prefix
    cosines: Tensor  # [R, N, dim]
    sines: Tensor
    to_prefix_and_own: Attend

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Context`: [R, G, N, heads, dim] in and out."""
        return self.to_prefix_and_own(query, key, value, self.layers[index], self.prefixes)


def attention_for(device: torch.device) -> Attend:
    """Kernels on CUDA, one for few trajectories and one for many; plain torch elsewhere."""
    if device.type != "cuda":
        return attend
    from alpamayo_ros.engine.kernels.sample_attention import attend_to_prefix_and_own
    from alpamayo_ros.engine.kernels.split_attention import attend_with_own  # Triton is there where CUDA is

    def by_kernel(query: Tensor, key: Tensor, value: Tensor, layer: LayerCache, prefixes: PagedPrefixes) -> Tensor:
        all_of_it = (query, key, value, layer.keys, layer.values, prefixes.block_table, prefixes.lengths)
        mixed = attend_to_prefix_and_own(*all_of_it)
        return attend_with_own(*all_of_it) if mixed is None else mixed

    return by_kernel


def attend(query: Tensor, key: Tensor, value: Tensor, layer: LayerCache, prefixes: PagedPrefixes) -> Tensor:
    """In plain torch: the two parts apart, merged by their log-sum-exp."""
    rows, samples, tokens = query.shape[:3]
    prefix, prefix_weight = _attend_to_prefix(query.flatten(1, 2), layer, prefixes)
    own, own_weight = _attend(query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1))
    shape = (rows, samples, tokens, query.shape[3])
    mixed, _ = _merge(
        (prefix.view(query.shape), prefix_weight.view(shape)), (own.view(query.shape), own_weight.view(shape))
    )
    return mixed.to(query.dtype)


def _attend_to_prefix(query: Tensor, layer: LayerCache, prefixes: PagedPrefixes) -> Partial:
    """Block by block: no more than one block's scores are in memory besides the result."""
    size = layer.keys.shape[1]
    mixed, weights = [], []
    for row, length in enumerate(prefixes.lengths.tolist()):
        parts = None
        for number, block in enumerate(prefixes.block_table[row, : math.ceil(length / size)].tolist()):
            valid = min(size, length - number * size)
            part = _attend(query[row : row + 1], layer.keys[block, None, :valid], layer.values[block, None, :valid])
            parts = part if parts is None else _merge(parts, part)
        assert parts is not None, "a prefix has at least one token"
        mixed.append(parts[0])
        weights.append(parts[1])
    return torch.cat(mixed), torch.cat(weights)


def _attend(query: Tensor, key: Tensor, value: Tensor) -> Partial:
    """Softmax attention in float32, [B, T, heads, dim] over [B, L, kv_heads, dim]."""
    groups = query.shape[2] // key.shape[2]
    grouped = query.float().unflatten(2, (key.shape[2], groups))
    scores = torch.einsum("bthgd,blhd->bthgl", grouped, key.float()) / math.sqrt(query.shape[-1])
    weight = scores.logsumexp(-1)
    mixed = torch.einsum("bthgl,blhd->bthgd", (scores - weight[..., None]).exp(), value.float())
    return mixed.flatten(2, 3), weight.flatten(2, 3)


def _merge(one: Partial, other: Partial) -> Partial:
    share = torch.sigmoid(one[1] - other[1])[..., None]
    return torch.lerp(other[0], one[0], share), torch.logaddexp(one[1], other[1])
