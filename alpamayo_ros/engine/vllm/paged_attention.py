"""Attention of the action tokens: to a prefix in vLLM's paged cache, and to those of their own sample.

The two parts are computed apart and merged by their log-sum-exp, so that nothing is written into the cache and the
prefix is copied nowhere. Queries of all samples of one prefix stand side by side in one sequence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.engine.vllm.kv_layout import LayerCache
from alpamayo_ros.model.pointwise import PLAIN, Pointwise


@dataclass(frozen=True, eq=False)
class PagedPrefixes:
    """Where R prefixes lie; static buffers, so that a captured graph reads the numbers of each tick."""

    block_table: Tensor  # [R, blocks at most] int32; behind a prefix's last block nothing is read
    lengths: Tensor  # [R] int32
    first_positions: Tensor  # [R] int64

    @classmethod
    def empty(cls, rows: int, max_blocks: int, device: torch.device) -> PagedPrefixes:
        """Room for R prefixes; each is one token in block 0 until it is filled."""
        return cls(
            torch.zeros(rows, max_blocks, dtype=torch.int32, device=device),
            torch.ones(rows, dtype=torch.int32, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
        )


Partial = tuple[Tensor, Tensor]  # mixed values [R, T, heads, dim], and log-sum-exp [R, T, heads] float32
AttendToPrefix = Callable[[Tensor, LayerCache, PagedPrefixes], Partial]  # query [R, T, heads, dim]
AttendToOwn = Callable[[Tensor, Tensor, Tensor], Partial]  # query, key, value [S, N, heads or kv_heads, dim]


@dataclass(frozen=True, eq=False)
class PagedContext:
    """What the expert's layers read (model/expert.py, `Context`)."""

    prefixes: PagedPrefixes
    layers: list[LayerCache]
    samples: int  # G, of each prefix
    cosines: Tensor  # [R, N, dim]
    sines: Tensor
    attend_to_prefix: AttendToPrefix
    attend_to_own: AttendToOwn
    pointwise: Pointwise = PLAIN

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Context`: [R, G, N, heads, dim] in and out."""
        rows, samples = query.shape[:2]
        prefix, prefix_weight = self.attend_to_prefix(query.flatten(1, 2), self.layers[index], self.prefixes)
        own, own_weight = self.attend_to_own(query.flatten(0, 1), key.flatten(0, 1), value.flatten(0, 1))
        shape = (rows, samples, *query.shape[2:4])
        mixed = self.pointwise.merged(
            prefix.view(query.shape), prefix_weight.view(shape), own.view(query.shape), own_weight.view(shape)
        )
        return mixed.to(query.dtype)


def attend_to_own(query: Tensor, key: Tensor, value: Tensor) -> Partial:
    """In plain torch: every action token of a sample to all of them."""
    return _attend(query, key, value)


def attend_to_prefix(query: Tensor, layer: LayerCache, prefixes: PagedPrefixes) -> Partial:
    """In plain torch, block by block: no more than one block's scores are in memory besides the result."""
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
