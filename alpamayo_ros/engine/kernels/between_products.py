"""What stands between the products of a transformer layer, one kernel each: residual and norm, gate, norm and rotation.

The formulas are those of model/pointwise.py. Each reads a product as [parts, rows, columns] and adds the parts up: one
part from cuBLAS in its own dtype, several in float32 from `split_product`. Everything is float32 until it is stored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.kernels.launch import launch_options, wait_for_inputs


def add_and_norm(hidden: Tensor, parts: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add a product to the residual stream in place, and give its RMSNorm.

    Args:
        hidden: [rows, size], overwritten by the sum.
        parts: [parts, rows, size], or None: nothing is added.
        weight: [size], of the norm.
        eps: Its epsilon.

    Returns:
        [rows, size] in the dtype of `hidden`.
    """
    rows, size = hidden.shape
    normed = torch.empty_like(hidden)
    _add_and_norm_kernel[(rows,)](
        hidden,
        hidden if parts is None else parts,
        weight,
        normed,
        hidden.numel(),
        size,
        eps,
        PARTS=0 if parts is None else len(parts),
        WIDTH=triton.next_power_of_2(size),
        num_warps=8 if size >= 2048 else 4,
        **launch_options(hidden.device),
    )
    return normed


def gate(both: Tensor) -> Tensor:
    """silu(g) * u of [rows, 2 columns], g before u: [rows, columns]."""
    rows, columns = both.shape[0], both.shape[1] // 2
    result = both.new_empty(rows, columns)
    width = 1024
    _gate_kernel[(triton.cdiv(columns, width), rows)](
        both, result, columns, WIDTH=width, num_warps=4, **launch_options(both.device)
    )
    return result


MANY_TOKENS = 128  # from here on a program takes all heads of a token: there are enough programs without


@dataclass(frozen=True, eq=False)
class HeadNorms:
    """RMSNorm of each head of queries and keys."""

    query: Tensor  # [dim]
    key: Tensor
    eps: float


@dataclass(frozen=True, eq=False)
class Destination:
    """Where keys and values go: token t to place `slots[t]` of a paged cache, or to place t of their own."""

    keys: Tensor  # [blocks, block_size, kv_heads, dim] with any strides but 1 for dim; block_size 1: one token each
    values: Tensor
    slots: Tensor | None = None  # [T] int64: block times block_size plus place; None: t


def norm_and_rotate(
    parts: Tensor, norms: HeadNorms, cosines: Tensor, sines: Tensor, samples: int, to: Destination
) -> Tensor:
    """Norm and rotary embedding of queries and keys; keys and values are written where they are read.

    Args:
        parts: [parts, T, (heads + 2 kv_heads) dim]: queries, keys and values of T = R G N tokens.
        norms: Of the heads.
        cosines, sines: [R, N, dim], the same for all G samples of a row.
        samples: G.
        to: Where keys and values go.

    Returns:
        Queries [T, heads, dim].
    """
    count, tokens, columns = parts.shape
    kv_heads, dim = to.keys.shape[2:]
    heads = columns // dim - 2 * kv_heads
    query = to.keys.new_empty(tokens, heads, dim)
    together = kv_heads if tokens >= MANY_TOKENS else 1
    asked = triton.next_power_of_2(together * heads // kv_heads)
    _rotate_kernel[(tokens, kv_heads // together)](
        parts,
        norms.query,
        norms.key,
        cosines,
        sines,
        query,
        to.keys,
        to.values,
        query if to.slots is None else to.slots,
        norms.eps,
        parts.stride(0),
        cosines.shape[1],
        cosines.shape[1] * samples,
        *to.keys.stride()[:3],
        *to.values.stride()[:3],
        PARTS=count,
        GROUP=heads // kv_heads,
        KV_HEADS=kv_heads,
        TOGETHER=together,
        ASKED=asked,
        KEPT=triton.next_power_of_2(together),
        HALF=dim // 2,
        SIZE=to.keys.shape[1],
        SLOTS=to.slots is not None,
        num_warps=max(1, min(8, asked * dim // 512)),
        **launch_options(parts.device),
    )
    return query


@triton.jit
def _sum_parts(at, mask, part, PARTS: tl.constexpr):
    """What is masked is undefined."""
    total = tl.load(at, mask=mask).to(tl.float32)
    for number in tl.static_range(1, PARTS):
        total += tl.load(at + number * part, mask=mask).to(tl.float32)
    return total


@triton.jit
def _add_and_norm_kernel(
    hidden,
    parts,
    weight,
    normed,
    part,  # elements of a part
    size,
    eps,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    column = tl.arange(0, WIDTH)
    inside = column < size
    at = tl.program_id(0) * size + column
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    wait_for_inputs(DEPENDENT)
    total = tl.load(hidden + at, mask=inside, other=0.0).to(tl.float32)
    if PARTS > 0:
        total += _sum_parts(parts + at, inside, part, PARTS)
        total = tl.where(inside, total, 0.0)
        stored = total.to(hidden.dtype.element_ty)
        tl.store(hidden + at, stored, mask=inside)
        total = stored.to(tl.float32)
    scale = tl.rsqrt(tl.sum(total * total, 0) / size + eps)
    tl.store(normed + at, (total * scale * factor).to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _gate_kernel(both, result, columns, WIDTH: tl.constexpr, DEPENDENT: tl.constexpr):
    column = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    inside = column < columns
    row = tl.program_id(1).to(tl.int64)
    wait_for_inputs(DEPENDENT)
    at = both + row * 2 * columns + column
    gated = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(at + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        result + row * columns + column, (gated / (1.0 + tl.exp(-gated)) * up).to(result.dtype.element_ty), mask=inside
    )


@triton.jit
def _rotate_kernel(
    parts,
    query_norm,
    key_norm,
    cosines,
    sines,
    query,
    keys,
    values,
    slots,
    eps,
    part,  # elements of a part
    angles,  # N
    row_tokens,  # G N
    key_block,  # strides
    key_place,
    key_head,
    value_block,
    value_place,
    value_head,
    PARTS: tl.constexpr,
    GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr,
    TOGETHER: tl.constexpr,  # KV heads of a program
    ASKED: tl.constexpr,  # their query heads, and they, or more: powers of two
    KEPT: tl.constexpr,
    HALF: tl.constexpr,
    SIZE: tl.constexpr,
    SLOTS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """One token, and some KV heads with the query heads that share them."""
    token = tl.program_id(0).to(tl.int64)
    first_head = tl.program_id(1) * TOGETHER
    half = tl.arange(0, HALF)[None, :]
    query_first = tl.load(query_norm + half).to(tl.float32)
    query_second = tl.load(query_norm + HALF + half).to(tl.float32)
    key_first = tl.load(key_norm + half).to(tl.float32)
    key_second = tl.load(key_norm + HALF + half).to(tl.float32)
    wait_for_inputs(DEPENDENT)
    angle = ((token // row_tokens) * angles + token % angles) * (2 * HALF) + half
    cosine = tl.load(cosines + angle).to(tl.float32)
    sine = tl.load(sines + angle).to(tl.float32)
    base = parts + token * ((GROUP + 2) * KV_HEADS * 2 * HALF)

    asked = tl.arange(0, ASKED)[:, None]
    exists = asked < TOGETHER * GROUP
    at = (first_head * GROUP + asked) * 2 * HALF + half
    first = _sum_parts(base + at, exists, part, PARTS)
    second = _sum_parts(base + at + HALF, exists, part, PARTS)
    first, second = _turn(first, second, query_first, query_second, cosine, sine, eps, HALF)
    to = query + token * (GROUP * KV_HEADS * 2 * HALF) + at
    tl.store(to, first.to(query.dtype.element_ty), mask=exists)
    tl.store(to + HALF, second.to(query.dtype.element_ty), mask=exists)

    slot = token
    if SLOTS:
        slot = tl.load(slots + token).to(tl.int64)
    block = slot // SIZE
    place = slot % SIZE
    kept = tl.arange(0, KEPT)[:, None]
    exists = kept < TOGETHER
    head = first_head + kept
    at = base + (GROUP * KV_HEADS + head) * 2 * HALF + half
    first = _sum_parts(at, exists, part, PARTS)
    second = _sum_parts(at + HALF, exists, part, PARTS)
    first, second = _turn(first, second, key_first, key_second, cosine, sine, eps, HALF)
    to = keys + block * key_block + place * key_place + head * key_head + half
    tl.store(to, first.to(keys.dtype.element_ty), mask=exists)
    tl.store(to + HALF, second.to(keys.dtype.element_ty), mask=exists)
    at += KV_HEADS * 2 * HALF
    to = values + block * value_block + place * value_place + head * value_head + half
    tl.store(to, _sum_parts(at, exists, part, PARTS).to(values.dtype.element_ty), mask=exists)
    tl.store(to + HALF, _sum_parts(at + HALF, exists, part, PARTS).to(values.dtype.element_ty), mask=exists)


@triton.jit
def _turn(first, second, norm_first, norm_second, cosine, sine, eps, HALF: tl.constexpr):
    """RMSNorm of heads, then their halves turned as pairs: two of [heads, HALF]."""
    scale = tl.rsqrt((tl.sum(first * first, 1) + tl.sum(second * second, 1)) / (2 * HALF) + eps)[:, None]
    first = first * scale * norm_first
    second = second * scale * norm_second
    return first * cosine - second * sine, second * cosine + first * sine
