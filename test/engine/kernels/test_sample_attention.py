"""Attention of many trajectories computes what float32 does: needs a Hopper GPU."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.flow.paged_attention import attend, attention_for
from alpamayo_ros.engine.flow.paged_cache import LayerCache, PagedPrefixes
from alpamayo_ros.engine.kernels.cuda_program import in_pieces, usable_kernel
from alpamayo_ros.engine.kernels.sample_attention import attend_to_prefix_and_own
from alpamayo_ros.engine.kernels.split_attention import attend_with_own

TOKENS, BLOCK, BLOCKS, HEADS, KV_HEADS, DIM = 64, 16, 210, 16, 8, 128


def make_cache(device: torch.device, block: int = BLOCK, packed: bool = False) -> LayerCache:
    """Packed: as vLLM may have it, keys and values of a token side by side, one KV head of a block after another."""
    if packed:
        memory = torch.randn(2 * BLOCKS + 1, KV_HEADS, block, 2 * DIM, device=device).bfloat16().transpose(1, 2)
        return LayerCache(memory[..., :DIM], memory[..., DIM:])
    shape = (2 * BLOCKS + 1, block, KV_HEADS, DIM)
    return LayerCache(*(torch.randn(shape, device=device).bfloat16() for _ in "kv"))


def make_prefixes(lengths: tuple[int, ...], device: torch.device) -> PagedPrefixes:
    prefixes = PagedPrefixes.empty(len(lengths), BLOCKS, device)
    for row in range(len(lengths)):
        prefixes.block_table[row].copy_(torch.randperm(2 * BLOCKS)[:BLOCKS] + 1)
    prefixes.lengths.copy_(torch.tensor(lengths))
    return prefixes


def make_tokens(rows: int, samples: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    heads = (HEADS, KV_HEADS, KV_HEADS)
    query, key, value = (torch.randn(rows, samples, TOKENS, each, DIM, device=device).bfloat16() for each in heads)
    return query, key, value


def by_cuda(tokens: tuple[Tensor, Tensor, Tensor], cache: LayerCache, prefixes: PagedPrefixes) -> Tensor | None:
    return attend_to_prefix_and_own(*tokens, cache.keys, cache.values, prefixes.block_table, prefixes.lengths)


def off(left: Tensor, right: Tensor) -> float:
    return float((left.float() - right.float()).norm() / right.float().norm())


@pytest.mark.parametrize(
    ("samples", "lengths"),
    [
        (16, (3106,)),
        (13, (3072,)),
        (16, (37,)),
        (16, (1,)),
        (16, (48,)),
        (16, (128,)),
        (16, (129,)),
        (16, (256,)),
        (1, tuple(range(3071, 3087))),
    ],
)
@pytest.mark.parametrize(("block", "packed"), [(16, False), (16, True), (32, False), (128, True)])
def test_it_is_attention_in_float32(
    samples: int, lengths: tuple[int, ...], block: int, packed: bool, hopper: torch.device
) -> None:
    cache, prefixes = make_cache(hopper, block, packed), make_prefixes(lengths, hopper)
    tokens = make_tokens(len(lengths), samples, hopper)
    ours = by_cuda(tokens, cache, prefixes)
    assert ours is not None
    wide = LayerCache(cache.keys.float(), cache.values.float())
    expected = attend(*(each.float() for each in tokens), wide, prefixes)
    assert off(ours, expected) < 5e-3
    other = attend_with_own(*tokens, cache.keys, cache.values, prefixes.block_table, prefixes.lengths)
    assert off(ours, other) < 5e-3
    assert all(torch.equal(by_cuda(tokens, cache, prefixes), ours) for _ in range(20)), "the same numbers each time"


def test_what_stands_behind_a_prefix_counts_for_nothing(hopper: torch.device) -> None:
    """Blocks that nobody has written yet may hold anything, also no numbers."""
    cache, prefixes = make_cache(hopper), make_prefixes((3081,), hopper)
    tokens = make_tokens(1, 16, hopper)
    expected = by_cuda(tokens, cache, prefixes)
    last = int(prefixes.block_table[0, 3081 // BLOCK])
    for memory in (cache.keys, cache.values):
        memory[last, 3081 % BLOCK :] = math.nan
        memory[prefixes.block_table[0, 3081 // BLOCK + 1 :].long()] = math.nan
    assert expected is not None
    assert torch.equal(by_cuda(tokens, cache, prefixes), expected)


def test_a_captured_one_follows_the_prefix(hopper: torch.device) -> None:
    """Lengths and blocks are read when a graph runs, not when it was recorded."""
    cache, prefixes = make_cache(hopper), make_prefixes((3106,), hopper)
    tokens = make_tokens(1, 16, hopper)
    how = attention_for(hopper)
    how(*tokens, cache, prefixes)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = how(*tokens, cache, prefixes)
    for length in (1500, 3200):
        other = make_prefixes((length,), hopper)
        prefixes.block_table.copy_(other.block_table)
        prefixes.lengths.copy_(other.lengths)
        tokens[0].normal_()
        graph.replay()
        assert torch.equal(recorded, how(*tokens, cache, prefixes))


def test_other_shapes_are_left_to_other_kernels(device: torch.device) -> None:
    """By what doesn't need the GPU itself: sizes, types, strides."""
    memory = torch.zeros(3, 16, 8, 136, dtype=torch.bfloat16, device=device)
    assert in_pieces(memory[..., :128])
    assert not in_pieces(memory[..., 1:129])
    assert not in_pieces(memory.transpose(2, 3))
    assert not in_pieces(torch.zeros(3, 16, 8, 129, dtype=torch.bfloat16, device=device)[..., :128])
    query, own = torch.zeros(1, 16, 32, 4, 16, device=device), torch.zeros(1, 16, 32, 2, 16, device=device)
    cache = torch.zeros(4, 16, 2, 16, device=device)
    table, lengths = torch.zeros(1, 2, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    assert attend_to_prefix_and_own(query, own, own, cache, cache, table.to(device), lengths.to(device)) is None


def test_few_trajectories_are_left_to_the_other_kernel(hopper: torch.device) -> None:
    assert by_cuda(make_tokens(1, 6, hopper), make_cache(hopper), make_prefixes((3106,), hopper)) is None


def test_without_a_gpu_there_is_no_kernel() -> None:
    assert usable_kernel("sample_attention", (), torch.device("cpu")) is None
