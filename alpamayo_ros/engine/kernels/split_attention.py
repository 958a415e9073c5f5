"""Attention of a few new tokens to a long sequence in a paged cache, split over the keys.

A decoding step, a draft, or the expert's action tokens are few queries; one program per head would leave most of a GPU
idle. So each program takes a part of the keys, and a second kernel combines the parts by their log-sum-exp
("flash decoding"). How many parts there are depends on shapes alone and the lengths lie on the device, so a captured
graph serves every length. Accumulated in float32, returned in the query's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import triton
from torch import Tensor

from alpamayo_ros.engine.kernels.launch import launch_options, multiprocessors, precision
from alpamayo_ros.engine.kernels.split_softmax import combine_kernel, split_kernel

LOG2_E = 1.4426950408889634
MOST_SPLITS = 32


@dataclass(frozen=True)
class Tiles:
    """How the work is cut."""

    queries: int  # of one KV head: tokens times the query heads that share it; at least 16
    keys: int  # that are loaded at once
    splits: int  # parts of the keys
    warps: int
    stages: int  # of the loads' pipeline


def attend_causal(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    shared: Tensor | None = None,
    tiles: Tiles | None = None,
) -> Tensor:
    """New tokens that stand in the cache already: each reads what is before it, and itself.

    Args:
        query: [R, M, heads, dim], rotated.
        keys, values: [blocks, block_size, kv_heads, dim], one layer of the cache with any strides.
        block_table: [R, most blocks] int32.
        lengths: [R] int32, tokens before the M new ones.
        shared: [1] int32, how many tokens before the new ones all rows have in the same blocks, or None: none. They are
            read once for all rows.
        tiles: How to cut the work; chosen by shape where it isn't given.

    Returns:
        [R, M, heads, dim].
    """
    rows, tokens, heads, _ = query.shape
    flat = query.flatten(0, 1)
    cache = _Cache(keys, values, block_table, lengths)
    own = _Pass(tokens, 1, tiles or choose_tiles(rows, tokens, heads, keys, block_table), causal=True)
    if shared is None:
        return _attend(flat, cache, [own]).view(query.shape)
    first = _Pass(rows * tokens, 1, choose_tiles(1, rows * tokens, heads, keys, block_table), shared=ONLY_SHARED)
    rest = replace(own, tiles=replace(own.tiles, splits=1), shared=ONLY_REST)
    return _attend(flat, cache, [first, rest], shared).view(query.shape)


def attend_with_own(
    query: Tensor,
    own_keys: Tensor,
    own_values: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    tiles: Tiles | None = None,
) -> Tensor:
    """Samples of N tokens after a prefix: each token reads the prefix and all tokens of its own sample.

    Args:
        query: [R, G, N, heads, dim], rotated; G samples after each of R prefixes. N is a power of two, at least 16.
        own_keys, own_values: [R, G, N, kv_heads, dim], which stand in no cache.
        keys, values, block_table: As for `attend_causal`.
        lengths: [R] int32, tokens of the prefixes
        tiles: As there.

    Returns:
        [R, G, N, heads, dim].
    """
    rows, samples, tokens, heads, _ = query.shape
    tiles = tiles or choose_tiles(rows * samples, tokens, heads, keys, block_table)
    own = (own_keys.flatten(0, 2), own_values.flatten(0, 2))
    cache = _Cache(keys, values, block_table, lengths)
    return _attend(query.flatten(0, 2), cache, [_Pass(tokens, samples, tiles, own=own)]).view(query.shape)


def choose_tiles(sequences: int, tokens: int, heads: int, keys: Tensor, block_table: Tensor) -> Tiles:
    """As many splits as there are multiprocessors for, and no more than there may be keys. Measured on an H200."""
    kv_heads = keys.shape[2]
    asked = tokens * heads // kv_heads
    processors = multiprocessors(keys.device)
    queries = max(16, triton.next_power_of_2(asked))
    if keys.shape[3] * keys.element_size() > 256:  # float32: more would not fit into the registers
        tiles = Tiles(min(64, queries), keys=32, splits=1, warps=4, stages=3)
    elif queries <= 64:
        tiles = Tiles(queries, keys=128 if queries == 16 else 64, splits=1, warps=4, stages=2)
    elif sequences * kv_heads * triton.cdiv(asked, 128) < processors // 10:  # so few that small ones are the better
        tiles = Tiles(64, keys=64, splits=1, warps=4, stages=3)
    else:
        tiles = Tiles(128, keys=64, splits=1, warps=8, stages=3)
    wanted = processors // (sequences * triton.cdiv(asked, tiles.queries) * kv_heads)
    if queries == 16:  # such a program leaves room for others on its multiprocessor
        wanted = max(wanted, 32 // sequences)
    parts = triton.cdiv(block_table.shape[1] * keys.shape[1], tiles.keys)
    return replace(tiles, splits=max(1, min(MOST_SPLITS, parts, wanted)))


@dataclass(frozen=True, eq=False)
class _Cache:
    """A layer of it, and where the sequences lie."""

    keys: Tensor
    values: Tensor
    block_table: Tensor
    lengths: Tensor


NOT_SHARED, ONLY_SHARED, ONLY_REST = range(3)


@dataclass(frozen=True, eq=False)
class _Pass:
    """One launch over all queries: what they are to each other, and what they read."""

    tokens: int  # of a sequence
    samples: int  # sequences that share a row of the block table
    tiles: Tiles
    own: tuple[Tensor, Tensor] | None = None  # keys and values of each sequence that stand outside of the cache
    causal: bool = False  # the last `tokens` of the cache are new
    shared: int = NOT_SHARED


def _attend(query: Tensor, cache: _Cache, passes: Sequence[_Pass], shared: Tensor | None = None) -> Tensor:
    """Over query [T, heads, dim]: every pass writes its parts; where there are several, a last kernel combines them."""
    total, heads, dim = query.shape
    mixed = query.new_empty(total, heads, dim)
    parts = sum(each.tiles.splits for each in passes)
    partial, weight = mixed, mixed
    if parts > 1:
        partial = query.new_empty(total, heads, parts, dim, dtype=torch.float32)
        weight = query.new_empty(total, heads, parts, dtype=torch.float32)
    first = 0
    for each in passes:
        _launch(query, cache, each, shared, partial, weight, first, parts)
        first += each.tiles.splits
    if parts > 1:
        rows = 4
        combine_kernel[(triton.cdiv(total * heads, rows),)](
            partial,
            weight,
            mixed,
            total * heads,
            DIM=dim,
            SPLITS=parts,
            PADDED=triton.next_power_of_2(parts),
            ROWS=rows,
            num_warps=4,
            **launch_options(query.device),
        )
    return mixed


def _launch(
    query: Tensor,
    cache: _Cache,
    do: _Pass,
    shared: Tensor | None,
    partial: Tensor,
    weight: Tensor,
    first: int,
    parts: int,
) -> None:
    total, heads, dim = query.shape
    kv_heads, tiles = cache.keys.shape[2], do.tiles
    blocks = triton.cdiv(do.tokens * heads // kv_heads, tiles.queries)
    own_k, own_v = do.own or (query, query)
    split_kernel[(total // do.tokens * blocks, kv_heads, tiles.splits)](
        query,
        own_k,
        own_v,
        cache.keys,
        cache.values,
        cache.block_table,
        cache.lengths,
        cache.lengths if shared is None else shared,
        partial,
        weight,
        LOG2_E / math.sqrt(dim),
        do.tokens,
        query.stride(0),
        query.stride(1),
        own_k.stride(0),
        own_k.stride(1),
        own_v.stride(0),
        own_v.stride(1),
        *cache.keys.stride(),
        *cache.values.stride(),
        cache.block_table.stride(0),
        GROUP=heads // kv_heads,
        HEADS=heads,
        DIM=dim,
        SIZE=cache.keys.shape[1],
        BLOCKS=blocks,
        SAMPLES=do.samples,
        OWN=0 if do.own is None else do.tokens,
        CAUSAL=do.causal,
        SHARED=do.shared,
        QUERIES=tiles.queries,
        KEYS=tiles.keys,
        SPLITS=tiles.splits,
        FIRST=first,
        PARTS=parts,
        PRECISION=precision(query.dtype),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **launch_options(query.device),
    )
