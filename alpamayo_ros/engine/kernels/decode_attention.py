"""All that is between a decoded token's products, attention with it, on a GPU that can (cuda/decode_attention.cu)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from alpamayo_ros.engine.kernels.between_products import Destination, HeadNorms
from alpamayo_ros.engine.kernels.cuda_program import in_pieces, tensor_map, usable_kernel
from alpamayo_ros.engine.kernels.sample_attention import DIM, KEYS_BOX, UNIT

PROGRAMS = 8  # for a KV head: a cluster
WARPS = 13  # of a program; each has room for a unit, so that 1,664 tokens are asked for at once
MOST_ROUNDS = 32  # units of a warp: a lane knows the block of each
MOST_TOKENS = PROGRAMS * WARPS * MOST_ROUNDS * UNIT
MOST_GROUP = 8


def attend_new_token(
    states: Tensor,
    norms: HeadNorms,
    cosines: Tensor,
    sines: Tensor,
    to: Destination,
    block_table: Tensor,
    lengths: Tensor,
) -> Tensor | None:
    """`norm_and_rotate`, and then `attend_causal`, of one token of one row.

    The tokens before this one, the angles, the slot, the block table and the length are read while the kernel before
    may still run, so that one may not write them: in a layer it is the product that gives `states`. Those before it are
    done, since it has waited for them.

    Args:
        states: [1, (heads + 2 kv_heads) dim]: query, key and value.
        norms: Of the heads.
        cosines, sines: [1, dim].
        to: The layer's cache, and where in it the key and the value go.
        block_table: [1, most blocks] int32.
        lengths: [1] int32, tokens before this one.

    Returns:
        [1, heads, dim], or None: it isn't made for these shapes, or for this GPU.
    """
    if not fits(states, norms, cosines, sines, to, block_table):
        return None
    kv_heads, dim = to.keys.shape[2:]
    heads = states.shape[1] // dim - 2 * kv_heads
    numbers = (states, norms.query, norms.key, cosines, sines, to.keys, to.values)
    kernel = usable_kernel("decode_attention", source_constants(heads, kv_heads, to.keys.shape[1]), states.device)
    if kernel is None:
        return None
    maps = [tensor_map(each, KEYS_BOX) for each in (to.keys, to.values)]
    if None in maps:
        return None
    mixed = states.new_empty(1, heads, dim)
    kernel.launch(
        (PROGRAMS, kv_heads),
        WARPS * 32,
        (
            *maps,
            *numbers,
            *to.keys.stride()[:3],
            *to.values.stride()[:3],
            *(to.slots, block_table, lengths, mixed, block_table.shape[1]),
            *(norms.eps, math.log2(math.e) / math.sqrt(dim)),
        ),
    )
    return mixed


def fits(
    states: Tensor, norms: HeadNorms, cosines: Tensor, sines: Tensor, to: Destination, block_table: Tensor
) -> bool:
    """Whether sizes, types and strides are what the kernel is made for."""
    block, kv_heads, dim = to.keys.shape[1:]
    heads = states.shape[1] // dim - 2 * kv_heads
    numbers = (states, norms.query, norms.key, cosines, sines, to.keys, to.values)
    return (
        (len(states), len(cosines), len(block_table), dim, heads % kv_heads) == (1, 1, 1, DIM, 0)
        and 1 <= heads // kv_heads <= MOST_GROUP
        and to.keys.shape == to.values.shape
        and to.slots is not None
        and (to.slots.dtype, block_table.dtype, block_table.stride(1)) == (torch.int64, torch.int32, 1)
        and block % UNIT == 0
        and block_table.shape[1] * block <= MOST_TOKENS
        and all(each.dtype == torch.bfloat16 and in_pieces(each) for each in numbers)
    )


def source_constants(heads: int, kv_heads: int, block_size: int) -> tuple[tuple[str, int], ...]:
    """What the source leaves open."""
    shape = (("GROUP", heads // kv_heads), ("KV_HEADS", kv_heads), ("BLOCK", block_size), ("DIM", DIM), ("UNIT", UNIT))
    return (*shape, ("PROGRAMS", PROGRAMS), ("WARPS", WARPS), ("MOST_ROUNDS", MOST_ROUNDS))
