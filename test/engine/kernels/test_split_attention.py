"""Split over keys and through a block table, attention is what one softmax over everything gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.kernels.split_attention import Tiles, attend_causal, attend_with_own

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}  # of outputs of about 1
KV_HEADS = 2


@dataclass(frozen=True, eq=False)
class Cache:
    """A cache with NaN wherever no sequence stands."""

    keys: Tensor
    values: Tensor
    table: Tensor
    lengths: Tensor
    plain: list[tuple[Tensor, Tensor]]  # per row, [length, kv_heads, dim]


def make_cache(
    lengths: list[int], size: int, dim: int, packed: bool, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Cache:
    generator = torch.Generator().manual_seed(seed)
    most = max(math.ceil(length / size) for length in lengths)
    count = 1 + sum(math.ceil(length / size) for length in lengths)
    if packed:  # as newer vLLM lays them out: [blocks, heads, size, 2 dim]
        both = torch.full((count, KV_HEADS, size, 2 * dim), math.nan, dtype=dtype, device=device).transpose(1, 2)
        keys, values = both[..., :dim], both[..., dim:]
    else:
        keys, values = (torch.full((count, size, KV_HEADS, dim), math.nan, dtype=dtype, device=device) for _ in "kv")
    table = torch.full((len(lengths), most), count + 1000, dtype=torch.int32)  # behind the end: no block at all
    free = torch.randperm(count, generator=generator).tolist()
    plain = []
    for row, length in enumerate(lengths):
        blocks = [free.pop() for _ in range(math.ceil(length / size))]
        table[row, : len(blocks)] = torch.tensor(blocks)
        written = []
        for cache in (keys, values):
            numbers = torch.randn(length, KV_HEADS, dim, generator=generator).to(device, dtype)
            for place in range(length):
                cache[blocks[place // size], place % size] = numbers[place]
            written.append(numbers)
        plain.append((written[0], written[1]))
    return Cache(keys, values, table.to(device), torch.tensor(lengths, dtype=torch.int32, device=device), plain)


def dense(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None) -> Tensor:
    """[T, heads, dim] over [L, kv_heads, dim] in float32."""
    groups = query.shape[1] // keys.shape[1]
    return functional.scaled_dot_product_attention(
        query.float().transpose(0, 1),
        keys.float().repeat_interleave(groups, 1).transpose(0, 1),
        values.float().repeat_interleave(groups, 1).transpose(0, 1),
        attn_mask=mask,
    ).transpose(0, 1)


def near(left: Tensor, right: Tensor, dtype: torch.dtype) -> None:
    assert left.dtype == dtype
    torch.testing.assert_close(left.float(), right.float(), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    tokens=st.integers(1, 11),
    groups=st.sampled_from([1, 4]),
    size=st.sampled_from([4, 16]),
    splits=st.sampled_from([None, 1, 3]),
    packed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_new_tokens_read_what_is_before_them(
    lengths: list[int], tokens: int, groups: int, size: int, splits: int | None, packed: bool, seed: int
) -> None:
    device, dtype = torch.device("cuda" if torch.cuda.is_available() else "cpu"), torch.float32
    cache = make_cache([length + tokens for length in lengths], size, 16, packed, dtype, device, seed)
    query = torch.randn(len(lengths), tokens, KV_HEADS * groups, 16, device=device) * 3
    tiles = None if splits is None else Tiles(16, 16, splits, 4, 3)
    mixed = attend_causal(query, cache.keys, cache.values, cache.table, cache.lengths - tokens, tiles=tiles)
    for row, length in enumerate(lengths):
        mask = torch.ones(tokens, length + tokens, dtype=torch.bool, device=device).tril(length)
        near(mixed[row], dense(query[row], *cache.plain[row], mask), dtype)


@settings(max_examples=12, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    samples=st.integers(1, 3),
    groups=st.sampled_from([1, 2]),
    splits=st.sampled_from([None, 1, 3]),
    packed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_samples_read_their_prefix_and_their_own(
    lengths: list[int], samples: int, groups: int, splits: int | None, packed: bool, seed: int
) -> None:
    device, dtype, tokens = torch.device("cuda" if torch.cuda.is_available() else "cpu"), torch.float32, 16
    cache = make_cache(lengths, 16, 16, packed, dtype, device, seed)
    query = torch.randn(len(lengths), samples, tokens, KV_HEADS * groups, 16, device=device) * 3
    both = torch.randn(len(lengths), samples, tokens, 2 * KV_HEADS, 16, device=device)
    own_keys, own_values = both[..., :KV_HEADS, :], both[..., KV_HEADS:, :]  # views of one projection
    tiles = None if splits is None else Tiles(16, 16, splits, 4, 3)
    mixed = attend_with_own(query, own_keys, own_values, cache.keys, cache.values, cache.table, cache.lengths, tiles)
    for row, (keys, values) in enumerate(cache.plain):
        for sample in range(samples):
            own = torch.cat((keys, own_keys[row, sample])), torch.cat((values, own_values[row, sample]))
            near(mixed[row, sample], dense(query[row, sample], *own), dtype)


@settings(max_examples=8, deadline=None)
@given(
    blocks=st.integers(0, 9),
    rests=st.lists(st.integers(0, 40), min_size=2, max_size=5),
    tokens=st.sampled_from([1, 3]),
    packed=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_what_rows_have_in_common_is_read_once(
    blocks: int, rests: list[int], tokens: int, packed: bool, seed: int
) -> None:
    device, dtype, size = torch.device("cuda" if torch.cuda.is_available() else "cpu"), torch.float32, 16
    lengths = [blocks * size + rest + tokens for rest in rests]
    cache = make_cache(lengths, size, 16, packed, dtype, device, seed)
    cache.table[:, :blocks] = cache.table[0, :blocks]
    query = torch.randn(len(rests), tokens, KV_HEADS * 2, 16, device=device)
    before = cache.lengths - tokens
    shared = torch.tensor([blocks * size], dtype=torch.int32, device=device)
    mixed = attend_causal(query, cache.keys, cache.values, cache.table, before, shared)
    for row, length in enumerate(lengths):
        mask = torch.ones(tokens, length, dtype=torch.bool, device=device).tril(length - tokens)
        in_common = (each[: blocks * size] for each in cache.plain[0])
        keys, values = (
            torch.cat((common, own[blocks * size :])) for common, own in zip(in_common, cache.plain[row], strict=True)
        )
        near(mixed[row], dense(query[row], keys, values, mask), dtype)


@pytest.mark.parametrize("dim", [32, 64, 128])
def test_every_type_and_size_of_a_head(dtype: torch.dtype, dim: int, device: torch.device) -> None:
    lengths = [37, 150]
    cache = make_cache(lengths, 16, dim, False, dtype, device)
    query = torch.randn(2, 1, 64, 4, dim, device=device, dtype=dtype)
    own_keys, own_values = (torch.randn(2, 1, 64, KV_HEADS, dim, device=device, dtype=dtype) for _ in "kv")
    mixed = attend_with_own(query, own_keys, own_values, cache.keys, cache.values, cache.table, cache.lengths)
    decoded = attend_causal(query[:, 0, :1], cache.keys, cache.values, cache.table, cache.lengths - 1)
    for row, (keys, values) in enumerate(cache.plain):
        own = torch.cat((keys, own_keys[row, 0])), torch.cat((values, own_values[row, 0]))
        near(mixed[row, 0], dense(query[row, 0], *own), dtype)
        near(decoded[row], dense(query[row, 0, :1], keys, values), dtype)


def test_scores_that_are_far_apart_don_t_overflow(device: torch.device) -> None:
    cache = make_cache([100], 16, 16, False, torch.float32, device)
    query = torch.randn(1, 1, 2, 16, device=device) * 500
    mixed = attend_causal(query, cache.keys, cache.values, cache.table, cache.lengths - 1, tiles=Tiles(16, 16, 4, 4, 3))
    near(mixed[0], dense(query[0], *cache.plain[0]), torch.float32)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_one_graph_serves_every_length() -> None:
    device = torch.device("cuda")
    cache = make_cache([3000], 16, 128, False, torch.float32, device)
    query = torch.randn(1, 1, 4, 128, device=device)
    lengths = torch.tensor([2999], dtype=torch.int32, device=device)
    attend_causal(query, cache.keys, cache.values, cache.table, lengths)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        mixed = attend_causal(query, cache.keys, cache.values, cache.table, lengths)
    for length in (2999, 1, 1300):
        lengths.fill_(length)
        graph.replay()
        keys, values = (each[: length + 1] for each in cache.plain[0])
        near(mixed[0], dense(query[0], keys, values), torch.float32)
