"""Attention of a few new tokens to a long sequence in a paged cache, split over the keys.

A decoding step, a draft, or the expert's action tokens are few queries; one program per head would leave most of a GPU
idle. So each program takes a part of the keys, and a second kernel combines the parts by their log-sum-exp
("flash decoding"). How many parts there are depends on shapes alone and the lengths lie on the device, so a captured
graph serves every length. Accumulated in float32, returned in the query's dtype.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    stages: int  # of the loads' pipeline; the block table is one more level of it


def attend_causal(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    tiles: Tiles | None = None,
) -> Tensor:
    """New tokens that stand in the cache already: each reads what is before it, and itself.

    Args:
        query: [R, M, heads, dim], rotated.
        keys, values: [blocks, block_size, kv_heads, dim], one layer of the cache with any strides.
        block_table: [R, most blocks] int32.
        lengths: [R] int32, tokens before the M new ones.
        tiles: How to cut the work; chosen by shape where it isn't given.

    Returns:
        [R, M, heads, dim].
    """
    rows, tokens, heads, _ = query.shape
    tiles = tiles or choose_tiles(rows, tokens, heads, keys, block_table)
    flat = query.flatten(0, 1)
    return _attend(flat, None, None, keys, values, block_table, lengths, tokens, 1, tiles).view(query.shape)


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
    flat = (query.flatten(0, 2), own_keys.flatten(0, 2), own_values.flatten(0, 2))
    return _attend(*flat, keys, values, block_table, lengths, tokens, samples, tiles).view(query.shape)


def choose_tiles(sequences: int, tokens: int, heads: int, keys: Tensor, block_table: Tensor) -> Tiles:
    """As many splits as there are multiprocessors for, and no more than there may be keys."""
    kv_heads = keys.shape[2]
    wide = keys.shape[3] * keys.element_size() > 256  # float32: more would not fit into the registers
    asked = tokens * heads // kv_heads
    queries = max(16, min(64 if wide else 128, triton.next_power_of_2(asked)))
    tile_keys = 32 if wide else 128
    programs = sequences * triton.cdiv(asked, queries) * kv_heads
    wanted = multiprocessors(keys.device) // programs
    if queries == 16:  # such a program leaves room for others on its multiprocessor
        wanted = max(wanted, 16)
    parts = triton.cdiv(block_table.shape[1] * keys.shape[1], tile_keys)
    splits = max(1, min(MOST_SPLITS, parts, wanted))
    return Tiles(queries, tile_keys, splits, warps=8 if queries == 128 else 4, stages=3)


def _attend(
    query: Tensor,
    own_keys: Tensor | None,
    own_values: Tensor | None,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    tokens: int,
    samples: int,
    tiles: Tiles,
) -> Tensor:
    """Over query [T, heads, dim] of sequences of `tokens` each, `samples` of which share a row of the block table."""
    total, heads, dim = query.shape
    kv_heads = keys.shape[2]
    blocks = triton.cdiv(tokens * heads // kv_heads, tiles.queries)
    mixed = query.new_empty(total, heads, dim)
    partial, weight = mixed, mixed
    if tiles.splits > 1:
        partial = query.new_empty(total, heads, tiles.splits, dim, dtype=torch.float32)
        weight = query.new_empty(total, heads, tiles.splits, dtype=torch.float32)
    own_k, own_v = (query, query) if own_keys is None or own_values is None else (own_keys, own_values)
    options = launch_options(query.device)
    split_kernel[(total // tokens * blocks, kv_heads, tiles.splits)](
        query,
        own_k,
        own_v,
        keys,
        values,
        block_table,
        lengths,
        partial,
        weight,
        LOG2_E / math.sqrt(dim),
        tokens,
        query.stride(0),
        query.stride(1),
        own_k.stride(0),
        own_k.stride(1),
        own_v.stride(0),
        own_v.stride(1),
        *keys.stride(),
        *values.stride(),
        block_table.stride(0),
        GROUP=heads // kv_heads,
        HEADS=heads,
        DIM=dim,
        SIZE=keys.shape[1],
        BLOCKS=blocks,
        SAMPLES=samples,
        OWN=0 if own_keys is None else tokens,
        QUERIES=tiles.queries,
        KEYS=tiles.keys,
        SPLITS=tiles.splits,
        PRECISION=precision(query.dtype),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
        **options,
    )
    if tiles.splits > 1:
        rows = 4
        combine_kernel[(triton.cdiv(total * heads, rows),)](
            partial,
            weight,
            mixed,
            total * heads,
            DIM=dim,
            SPLITS=tiles.splits,
            PADDED=triton.next_power_of_2(tiles.splits),
            ROWS=rows,
            num_warps=4,
            **options,
        )
    return mixed
