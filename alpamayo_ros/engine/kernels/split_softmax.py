"""The kernels of split_attention.py: a part of the keys, by an online softmax, and the parts put together."""

from __future__ import annotations

import triton
import triton.language as tl

from alpamayo_ros.engine.kernels.launch import wait_for_inputs


@triton.jit
def split_kernel(
    query,
    own_keys,
    own_values,
    keys,
    values,
    block_table,
    lengths,
    shared,  # [1]: tokens that all sequences have in common
    partial,  # [T, heads, PARTS, DIM] float32; with one part the result itself
    weight,  # [T, heads, PARTS] float32: log-sum-exp in base 2
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
    OWN: tl.constexpr,  # tokens of a sequence that stand outside of the cache
    CAUSAL: tl.constexpr,  # the last `tokens` in the cache are new: each sees those before it
    SHARED: tl.constexpr,  # 0: nothing is in common; 1: only what is in common is read; 2: only the rest
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    SPLITS: tl.constexpr,
    FIRST: tl.constexpr,  # of the parts that this launch writes
    PARTS: tl.constexpr,  # of all launches
    PRECISION: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """Some queries of one KV head over a part of the keys."""
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
    begin = 0
    length = before
    if CAUSAL:
        length = before + tokens
    if SHARED == 1:
        length = tl.load(shared)
    if SHARED == 2:
        begin = tl.load(shared)
    at = (sequence * tokens + token).to(tl.int64)
    asked = tl.load(
        query + (at * query_token + head * query_head)[:, None] + dims[None, :], mask=exists[:, None], other=0.0
    )
    first, end = _part(begin, length, split, KEYS, SPLITS)
    best = tl.full([QUERIES], -1e30, tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, DIM], tl.float32)
    seen_by_all = end
    if CAUSAL:  # what every query sees needs no mask
        seen_by_all = tl.minimum(end, before)
    whole = first + tl.maximum(seen_by_all - first, 0) // KEYS * KEYS
    # The blocks of the next keys are looked up a step ahead. As part of the loop's own loads they would be a level more
    # of its pipeline, and no keys would be on their way while others are computed with.
    offset = tl.arange(0, KEYS)
    block = tl.load(table + (first + offset) // SIZE, mask=first + offset < whole, other=0).to(tl.int64)
    for start in range(first, whole, KEYS):
        place = (start + offset) % SIZE
        key_at = block * key_block + place * key_place
        value_at = block * value_block + place * value_place
        key = tl.load(key_base + key_at[:, None] + dims[None, :] * key_dim)
        value = tl.load(value_base + value_at[:, None] + dims[None, :] * value_dim)
        later = start + KEYS + offset
        block = tl.load(table + later // SIZE, mask=later < whole, other=0).to(tl.int64)
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
        if CAUSAL:
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
    to = (at * HEADS + head) * PARTS + FIRST + split
    tl.store(partial + to[:, None] * DIM + dims[None, :], mixed.to(partial.dtype.element_ty), mask=exists[:, None])
    if PARTS > 1:
        tl.store(weight + to, tl.where(any_key, best + tl.log2(total), -1e30), mask=exists)


@triton.jit
def _part(begin, length, split, KEYS: tl.constexpr, SPLITS: tl.constexpr):
    """The columns of the cache that a program reads: the first, and the one behind the last."""
    steps = tl.cdiv(length - begin, KEYS)
    return begin + split * steps // SPLITS * KEYS, tl.minimum(begin + (split + 1) * steps // SPLITS * KEYS, length)


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
def combine_kernel(
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
    """The parts of some queries, weighted by their log-sum-exp."""
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
