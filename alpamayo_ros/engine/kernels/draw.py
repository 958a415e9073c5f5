"""Keyed draws of tokens in three kernels: `draw_token` of engine/sampling.py for rows of logits, without sorting them.

The first makes the noise (native/philox.py in unsigned arithmetic, which Triton has) and each part's best. Whether the
best of all is likely enough (top-p) is a question of how much probability the tokens have that are no likelier: the
second kernel adds that up part by part. Only if it is too little does the third look for the best among the likelier
ones, and so on, by itself.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COUNTERS = 256  # of the noise's generator per program, of four numbers each
PART = 4096  # tokens per program of the second kernel
MOST_AT_ONCE = 32768  # tokens that the third looks at

_FIRST_FACTOR = tl.constexpr(0xD2E7470EE14C6C93)
_SECOND_FACTOR = tl.constexpr(0xCA5A826395121157)
_FIRST_STEP = tl.constexpr(0x9E3779B97F4A7C15)
_SECOND_STEP = tl.constexpr(0xBB67AE8584CAA73B)


def draw_rows(logits: Tensor, words: Tensor, settings: Tensor, forbidden: range) -> Tensor:
    """Draw a token for every row; see native/drawing.py, whose arguments and result are the same."""
    rows, size = logits.shape
    parts = triton.cdiv(size, 4 * COUNTERS)
    scores = torch.empty_like(logits)
    sums = logits.new_empty(rows, 3, parts)
    places = torch.empty(rows, parts, dtype=torch.int64, device=logits.device)
    tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
    _score_kernel[(parts, rows)](
        logits,
        words,
        settings,
        scores,
        sums,
        places,
        size,
        forbidden.start,
        forbidden.stop,
        WIDTH=COUNTERS,
        num_warps=4,
    )
    masses = logits.new_empty(rows, triton.cdiv(size, PART))
    _mass_kernel[(masses.shape[1], rows)](
        logits,
        settings,
        sums,
        places,
        masses,
        size,
        forbidden.start,
        forbidden.stop,
        parts,
        PARTS=triton.next_power_of_2(parts),
        WIDTH=PART,
        num_warps=8,
    )
    width = min(MOST_AT_ONCE, triton.next_power_of_2(size))
    _choose_kernel[(rows,)](
        logits,
        settings,
        scores,
        sums,
        places,
        masses,
        tokens,
        size,
        forbidden.start,
        forbidden.stop,
        parts,
        masses.shape[1],
        MASSES=triton.next_power_of_2(masses.shape[1]),
        PARTS=triton.next_power_of_2(parts),
        WIDTH=width,
        num_warps=max(1, min(32, width // 64)),
    )
    return tokens


@triton.jit
def _score_kernel(
    logits,  # [R, size] float32
    words,  # [R, 2] int64
    settings,  # [2] float32
    scores,  # [R, size] float32: scaled logits and noise
    sums,  # [R, 3, parts] float32: of a part the highest scaled logit, the sum of its exponentials, the best score
    places,  # [R, parts] int64: of the best score
    size,
    forbidden_start,
    forbidden_stop,
    WIDTH: tl.constexpr,
):
    part = tl.program_id(0)
    parts = tl.num_programs(0)
    row = tl.program_id(1)
    number = part * WIDTH + tl.arange(0, WIDTH)
    word0, word1, word2, word3 = _philox(number, words + 2 * row, WIDTH)
    temperature = tl.load(settings)
    at = row.to(tl.int64) * size
    scaled0, score0 = _scored(logits + at, 4 * number, word0, temperature, size, forbidden_start, forbidden_stop)
    scaled1, score1 = _scored(logits + at, 4 * number + 1, word1, temperature, size, forbidden_start, forbidden_stop)
    scaled2, score2 = _scored(logits + at, 4 * number + 2, word2, temperature, size, forbidden_start, forbidden_stop)
    scaled3, score3 = _scored(logits + at, 4 * number + 3, word3, temperature, size, forbidden_start, forbidden_stop)
    tl.store(scores + at + 4 * number, score0, mask=4 * number < size)
    tl.store(scores + at + 4 * number + 1, score1, mask=4 * number + 1 < size)
    tl.store(scores + at + 4 * number + 2, score2, mask=4 * number + 2 < size)
    tl.store(scores + at + 4 * number + 3, score3, mask=4 * number + 3 < size)

    highest = tl.max(tl.maximum(tl.maximum(scaled0, scaled1), tl.maximum(scaled2, scaled3)), 0)
    base = tl.where(highest == -float("inf"), 0.0, highest)
    total = tl.sum(tl.exp(scaled0 - base) + tl.exp(scaled1 - base) + tl.exp(scaled2 - base) + tl.exp(scaled3 - base), 0)
    best = tl.max(tl.maximum(tl.maximum(score0, score1), tl.maximum(score2, score3)), 0)
    place = tl.minimum(_where_equal(score0, best, 4 * number), _where_equal(score1, best, 4 * number + 1))
    place = tl.minimum(place, _where_equal(score2, best, 4 * number + 2))
    place = tl.minimum(place, _where_equal(score3, best, 4 * number + 3))
    to = sums + row * 3 * parts + part
    tl.store(to, highest)
    tl.store(to + parts, total)
    tl.store(to + 2 * parts, best)
    tl.store(places + row * parts + part, tl.min(place, 0).to(tl.int64))


@triton.jit
def _mass_kernel(
    logits,
    settings,
    sums,
    places,
    masses,  # [R, parts of WIDTH] float32
    size,
    forbidden_start,
    forbidden_stop,
    parts,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(1)
    temperature = tl.load(settings)
    highest, _, token = _best(sums, places, row, parts, size, PARTS)
    base = row.to(tl.int64) * size
    likely = _scale(tl.load(logits + base + token), temperature)
    start = tl.program_id(0) * WIDTH
    mass = _no_likelier(
        logits + base, start, start + 1, likely, highest, temperature, size, forbidden_start, forbidden_stop, WIDTH
    )
    tl.store(masses + row * tl.num_programs(0) + tl.program_id(0), mass)


@triton.jit
def _choose_kernel(
    logits,
    settings,
    scores,
    sums,
    places,
    masses,
    tokens,  # [R] int64
    size,
    forbidden_start,
    forbidden_stop,
    parts,
    mass_parts,
    MASSES: tl.constexpr,
    PARTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0)
    temperature = tl.load(settings)
    top_p = tl.load(settings + 1)
    highest, total, token = _best(sums, places, row, parts, size, PARTS)
    base = row.to(tl.int64) * size
    likely = _scale(tl.load(logits + base + token), temperature)
    unlikely = (1.0 - top_p) * total
    if (temperature > 0) & (top_p < 1):
        part = tl.arange(0, MASSES)
        mass = tl.sum(tl.load(masses + row * mass_parts + part, mask=part < mass_parts, other=0.0), 0)
        while (mass <= unlikely) & (likely < highest):
            token = _best_of_likelier(
                logits + base, scores + base, likely, temperature, size, forbidden_start, forbidden_stop, WIDTH
            )
            likely = _scale(tl.load(logits + base + token), temperature)
            mass = _no_likelier(
                logits + base, 0, size, likely, highest, temperature, size, forbidden_start, forbidden_stop, WIDTH
            )
    tl.store(tokens + row, token)


@triton.jit
def _best(sums, places, row, parts, size, PARTS: tl.constexpr):
    """The highest scaled logit, the sum of all exponentials beside it, and where the best score is."""
    part = tl.arange(0, PARTS)
    there = part < parts
    at = sums + row * 3 * parts + part
    heights = tl.load(at, mask=there, other=-float("inf"))
    highest = tl.max(heights, 0)
    total = tl.sum(tl.load(at + parts, mask=there, other=0.0) * tl.exp(heights - highest), 0)
    bests = tl.load(at + 2 * parts, mask=there, other=-float("inf"))
    where = tl.load(places + row * parts + part, mask=there, other=size)
    return highest, total, tl.min(tl.where(bests == tl.max(bests, 0), where, size), 0)


@triton.jit
def _no_likelier(
    logits, first, end, likely, highest, temperature, size, forbidden_start, forbidden_stop, WIDTH: tl.constexpr
):
    """The sum of exponentials of the tokens that are no likelier, in pieces that begin before `end`."""
    total = tl.zeros([WIDTH], tl.float32)
    for start in range(first, end, WIDTH):
        place = start + tl.arange(0, WIDTH)
        allowed = (place < size) & ((place < forbidden_start) | (place >= forbidden_stop))
        scaled = _scale(tl.load(logits + place, mask=allowed, other=-float("inf")), temperature)
        total += tl.where(scaled <= likely, tl.exp(scaled - highest), 0.0)
    return tl.sum(total, 0)


@triton.jit
def _best_of_likelier(logits, scores, likely, temperature, size, forbidden_start, forbidden_stop, WIDTH: tl.constexpr):
    """Where the best score of the likelier tokens is."""
    best = tl.full([WIDTH], -float("inf"), tl.float32)
    where = tl.full([WIDTH], 0, tl.int64)
    for start in range(0, size, WIDTH):
        place = start + tl.arange(0, WIDTH)
        allowed = (place < size) & ((place < forbidden_start) | (place >= forbidden_stop))
        scaled = _scale(tl.load(logits + place, mask=allowed, other=-float("inf")), temperature)
        score = tl.load(scores + place, mask=allowed & (scaled > likely), other=-float("inf"))
        where = tl.where(score > best, place.to(tl.int64), where)
        best = tl.maximum(best, score)
    return tl.min(tl.where(best == tl.max(best, 0), where, size), 0)


@triton.jit
def _scored(logits, place, word, temperature, size, forbidden_start, forbidden_stop):
    """Scaled logits, and these with noise; without at temperature 0."""
    allowed = (place < size) & ((place < forbidden_start) | (place >= forbidden_stop))
    scaled = _scale(tl.load(logits + place, mask=allowed, other=-float("inf")), temperature)
    uniform = ((word >> 11).to(tl.float64) + 0.5) * 1.1102230246251565e-16  # 2^-53
    noise = (-tl.log(-tl.log(uniform))).to(tl.float32)
    return scaled, tl.where(temperature > 0, scaled + noise, scaled)


@triton.jit
def _scale(logits, temperature):
    return logits / tl.where(temperature > 0, temperature, 1.0)


@triton.jit
def _where_equal(score, best, place):
    return tl.where(score == best, place, 2147483647)


@triton.jit
def _philox(number, words, WIDTH: tl.constexpr):
    """Four numbers of 64 bits for each counter."""
    zero = tl.zeros([WIDTH], tl.uint64)
    word0 = zero + number.to(tl.uint64) + 1
    word1, word2, word3 = zero, zero, zero
    key0 = zero + tl.load(words).to(tl.uint64, bitcast=True)
    key1 = zero + tl.load(words + 1).to(tl.uint64, bitcast=True)
    factor0 = tl.full([WIDTH], _FIRST_FACTOR, tl.uint64)
    factor1 = tl.full([WIDTH], _SECOND_FACTOR, tl.uint64)
    for _ in tl.static_range(10):
        high0, low0 = tl.umulhi(word0, factor0), word0 * factor0
        high1, low1 = tl.umulhi(word2, factor1), word2 * factor1
        word0, word1, word2, word3 = high1 ^ word1 ^ key0, low1, high0 ^ word3 ^ key1, low0
        key0 += tl.full([WIDTH], _FIRST_STEP, tl.uint64)
        key1 += tl.full([WIDTH], _SECOND_STEP, tl.uint64)
    return word0, word1, word2, word3
