"""Keyed Gumbel noise in one kernel: native/philox.py in unsigned arithmetic, which Triton has."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

WIDTH = 256  # counters per program, of four numbers each

_FIRST_FACTOR = tl.constexpr(0xD2E7470EE14C6C93)
_SECOND_FACTOR = tl.constexpr(0xCA5A826395121157)
_FIRST_STEP = tl.constexpr(0x9E3779B97F4A7C15)
_SECOND_STEP = tl.constexpr(0xBB67AE8584CAA73B)


def gumbel_rows(keys: Tensor, size: int) -> Tensor:
    """Standard Gumbel noise [B, size] float32 of keys [B, 2] int64; see native/philox.py."""
    noise = torch.empty(len(keys), size, dtype=torch.float32, device=keys.device)
    _gumbel_kernel[(triton.cdiv(size, 4 * WIDTH), len(keys))](keys, noise, size, WIDTH=WIDTH, num_warps=4)
    return noise


@triton.jit
def _gumbel_kernel(keys, noise, size, WIDTH: tl.constexpr):
    number = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    row = tl.program_id(1)
    zero = tl.zeros([WIDTH], tl.uint64)
    word0 = zero + number.to(tl.uint64) + 1
    word1, word2, word3 = zero, zero, zero
    key0 = zero + tl.load(keys + 2 * row).to(tl.uint64, bitcast=True)
    key1 = zero + tl.load(keys + 2 * row + 1).to(tl.uint64, bitcast=True)
    factor0 = tl.full([WIDTH], _FIRST_FACTOR, tl.uint64)
    factor1 = tl.full([WIDTH], _SECOND_FACTOR, tl.uint64)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(word0, factor0), word0 * factor0
        high1, low1 = tl.umulhi(word2, factor1), word2 * factor1
        word0, word1, word2, word3 = high1 ^ word1 ^ key0, low1, high0 ^ word3 ^ key1, low0
        key0 += tl.full([WIDTH], _FIRST_STEP, tl.uint64)
        key1 += tl.full([WIDTH], _SECOND_STEP, tl.uint64)
    to = noise + row.to(tl.int64) * size
    _store(to, 4 * number, word0, size)
    _store(to, 4 * number + 1, word1, size)
    _store(to, 4 * number + 2, word2, size)
    _store(to, 4 * number + 3, word3, size)


@triton.jit
def _store(to, place, word, size):
    uniform = ((word >> 11).to(tl.float64) + 0.5) * 1.1102230246251565e-16  # 2^-53
    tl.store(to + place, (-tl.log(-tl.log(uniform))).to(tl.float32), mask=place < size)
