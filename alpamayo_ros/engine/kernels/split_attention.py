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
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.kernels.launch import launch_options, multiprocessors, precision, wait_for_inputs

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
    _split_kernel[(total // tokens * blocks, kv_heads, tiles.splits)](
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
        _combine_kernel[(triton.cdiv(total * heads, rows),)](
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


@triton.jit
def _split_kernel(
    query,
    own_keys,
    own_values,
    keys,
    values,
    block_table,
    lengths,
    partial,  # [T, heads, SPLITS, DIM] float32; with one split the result itself
    weight,  # [T, heads, SPLITS] float32: log-sum-exp in base 2
    scale,  # of the scores, and to base 2
    tokens,  # of a sequence
    query_token,  # strides, in elements
    query_head,
    own_key_token,
    own_key_head,
    own_value_token,
    own_value_head,
    key_block,
    key_place,
    key_head,
    key_dim,
    value_block,
    value_place,
    value_head,
    value_dim,
    table_row,
    GROUP: tl.constexpr,  # query heads of a KV head
    HEADS: tl.constexpr,
    DIM: tl.constexpr,
    SIZE: tl.constexpr,  # tokens in a block of the cache
    BLOCKS: tl.constexpr,  # programs over the queries of a sequence and KV head
    SAMPLES: tl.constexpr,  # sequences that share a row of the block table
    OWN: tl.constexpr,  # tokens of a sequence that stand outside of the cache, or 0: the last `tokens` in it are new
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    sequence = tl.program_id(0) // BLOCKS
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    inner = (tl.program_id(0) % BLOCKS) * QUERIES + tl.arange(0, QUERIES)
    token = inner // GROUP
    head = kv_head * GROUP + inner % GROUP
    exists = token < tokens
    dims = tl.arange(0, DIM)
    row = sequence // SAMPLES
    table = block_table + row * table_row
    key_base = keys + kv_head * key_head
    value_base = values + kv_head * value_head
    wait_for_inputs(DEPENDENT)

    before = tl.load(lengths + row)
    at = (sequence * tokens + token).to(tl.int64)
    asked = tl.load(
        query + (at * query_token + head * query_head)[:, None] + dims[None, :], mask=exists[:, None], other=0.0
    )
    first, end = _part(before, tokens, split, OWN, KEYS, SPLITS)
    best = tl.full([QUERIES], -1e30, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, DIM], tl.float32)
    whole = end // KEYS * KEYS
    if OWN == 0:  # what every query sees needs no mask
        whole = tl.minimum(end, before) // KEYS * KEYS
    for start in range(first, whole, KEYS):
        column = start + tl.arange(0, KEYS)
        block = tl.load(table + column // SIZE).to(tl.int64)
        place = column % SIZE
        key_at = block * key_block + place * key_place
        value_at = block * value_block + place * value_place
        key = tl.load(key_base + key_at[:, None] + dims[None, :] * key_dim)
        value = tl.load(value_base + value_at[:, None] + dims[None, :] * value_dim)
        best, total, mixed = _take(asked, key, value, best, total, mixed, scale, PRECISION)
    for start in range(tl.maximum(first, whole), end, KEYS):
        column = start + tl.arange(0, KEYS)
        inside = column < end
        block = tl.load(table + column // SIZE, mask=inside, other=0).to(tl.int64)
        place = column % SIZE
        key_at = block * key_block + place * key_place
        value_at = block * value_block + place * value_place
        key = tl.load(key_base + key_at[:, None] + dims[None, :] * key_dim, mask=inside[:, None], other=0.0)
        value = tl.load(value_base + value_at[:, None] + dims[None, :] * value_dim, mask=inside[:, None], other=0.0)
        seen = inside[None, :]
        if OWN == 0:
            seen = seen & (column[None, :] <= before + token[:, None])
        best, total, mixed = _take_some(asked, key, value, seen, best, total, mixed, scale, PRECISION)
    if OWN > 0:  # noqa: SIM102 - decided when it is compiled
        if split == 0:  # no part of the prefix is shorter
            own_at = (sequence * OWN + tl.arange(0, OWN)).to(tl.int64)
            own_key_at = own_at * own_key_token + kv_head * own_key_head
            own_value_at = own_at * own_value_token + kv_head * own_value_head
            key = tl.load(own_keys + own_key_at[:, None] + dims[None, :])
            value = tl.load(own_values + own_value_at[:, None] + dims[None, :])
            best, total, mixed = _take(asked, key, value, best, total, mixed, scale, PRECISION)

    any_key = total > 0  # not in a part that lies behind a short sequence, or behind a query
    total = tl.where(any_key, total, 1.0)
    mixed = mixed / total[:, None]
    to = (at * HEADS + head) * SPLITS + split
    tl.store(partial + to[:, None] * DIM + dims[None, :], mixed.to(partial.dtype.element_ty), mask=exists[:, None])
    if SPLITS > 1:
        tl.store(weight + to, tl.where(any_key, best + tl.log2(total), -1e30), mask=exists)


@triton.jit
def _part(before, tokens, split, OWN: tl.constexpr, KEYS: tl.constexpr, SPLITS: tl.constexpr):
    """The columns of the cache that a program reads: the first, and the one behind the last."""
    length = before
    if OWN == 0:
        length = before + tokens
    steps = tl.cdiv(length, KEYS)
    return split * steps // SPLITS * KEYS, tl.minimum((split + 1) * steps // SPLITS * KEYS, length)


@triton.jit
def _take(query, key, value, best, total, mixed, scale, PRECISION: tl.constexpr):
    """A step of the online softmax: some more keys, which every query sees."""
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION)
    higher = tl.maximum(best, tl.max(scores, 1) * scale)
    share = tl.exp2(scores * scale - higher[:, None])
    fade = tl.exp2(best - higher)
    mixed = tl.dot(share.to(value.dtype), value, mixed * fade[:, None], input_precision=PRECISION)
    return higher, total * fade + tl.sum(share, 1), mixed


@triton.jit
def _take_some(query, key, value, seen, best, total, mixed, scale, PRECISION: tl.constexpr):
    """Likewise, of keys that not every query sees."""
    scores = tl.where(seen, tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale, -1e30)
    higher = tl.maximum(best, tl.max(scores, 1))
    share = tl.where(seen, tl.exp2(scores - higher[:, None]), 0.0)
    fade = tl.exp2(best - higher)
    mixed = tl.dot(share.to(value.dtype), value, mixed * fade[:, None], input_precision=PRECISION)
    return higher, total * fade + tl.sum(share, 1), mixed


@triton.jit
def _combine_kernel(
    partial,  # [T, heads, SPLITS, DIM]
    weight,  # [T, heads, SPLITS]
    mixed,  # [T, heads, DIM]
    count,  # T heads
    DIM: tl.constexpr,
    SPLITS: tl.constexpr,
    PADDED: tl.constexpr,  # a power of two
    ROWS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    split = tl.arange(0, PADDED)
    dims = tl.arange(0, DIM)
    there = (row < count)[:, None] & (split < SPLITS)[None, :]
    at = row[:, None].to(tl.int64) * SPLITS + split[None, :]
    wait_for_inputs(DEPENDENT)
    logs = tl.load(weight + at, mask=there, other=-1e30)
    shares = tl.exp2(logs - tl.max(logs, 1)[:, None])
    shares = tl.where(there, shares, 0.0)
    parts = tl.load(partial + at[:, :, None] * DIM + dims[None, None, :], mask=there[:, :, None], other=0.0)
    sums = tl.sum(shares, 1)
    result = tl.sum(parts * shares[:, :, None], 1) / tl.where(row < count, sums, 1.0)[:, None]
    to = row[:, None].to(tl.int64) * DIM + dims[None, :]
    tl.store(mixed + to, result.to(mixed.dtype.element_ty), mask=(row < count)[:, None])
