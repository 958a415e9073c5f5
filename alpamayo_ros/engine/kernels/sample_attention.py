"""Attention of many trajectories to a prefix and to their own tokens, on a GPU that can (cuda/sample_attention.cu)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from alpamayo_ros.engine.kernels.cuda_program import in_pieces, tensor_map, usable_kernel
from alpamayo_ros.engine.kernels.launch import multiprocessors

TOKENS = 64  # of a trajectory
DIM = 128
THREADS = 384
UNIT = 16  # keys that are copied at once
KEYS_BOX = (1, UNIT, 1, 64)  # of [blocks, block_size, kv_heads, dim]
LEAST_SHARE = 0.75  # of the multiprocessors that there has to be a program for; else the keys are split


def attend_to_prefix_and_own(
    query: Tensor,
    own_keys: Tensor,
    own_values: Tensor,
    keys: Tensor,
    values: Tensor,
    block_table: Tensor,
    lengths: Tensor,
) -> Tensor | None:
    """The same function as `split_attention.attend_with_own`, for as many trajectories as fill a GPU.

    The cache, the block table and the lengths are read while the kernel before may still run, so that one may not write
    them: the expert's rotates queries. Those before it are done, since it has waited for them.

    Returns:
        [R, G, N, heads, dim], or None: it isn't made for these shapes, or for this GPU.
    """
    rows, samples, tokens, heads, dim = query.shape
    kv_heads = keys.shape[2]
    if (
        (tokens, dim, heads) != (TOKENS, DIM, 2 * kv_heads)
        or any(each.dtype != torch.bfloat16 for each in (query, own_keys, own_values, keys, values))
        or rows * samples * kv_heads < LEAST_SHARE * multiprocessors(query.device)
        or not (query.is_contiguous() and own_keys.is_contiguous() and own_values.is_contiguous())
        or not (in_pieces(keys) and in_pieces(values) and keys.shape[1] % UNIT == 0)
    ):
        return None
    kernel = usable_kernel("sample_attention", source_constants(heads, kv_heads, keys.shape[1]), keys.device)
    if kernel is None:
        return None
    maps = [tensor_map(each, KEYS_BOX) for each in (keys, values)]
    if None in maps:
        return None
    mixed = torch.empty_like(query)
    kernel.launch(
        (kv_heads, rows * samples),
        THREADS,
        (
            *maps,
            *(query, own_keys, own_values, mixed, block_table, lengths),
            *(block_table.stride(0), samples),
            math.log2(math.e) / math.sqrt(dim),
        ),
    )
    return mixed


def source_constants(heads: int, kv_heads: int, block_size: int) -> tuple[tuple[str, int], ...]:
    """What the source leaves open."""
    shape = (("HEADS", heads), ("KV_HEADS", kv_heads), ("BLOCK", block_size), ("TOKENS", TOKENS), ("DIM", DIM))
    return (*shape, ("UNIT", UNIT), ("THREADS", THREADS))
