"""Attention over paged blocks, merged with a sample's own tokens: what one softmax over everything gives."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from alpamayo_ros.engine.flow.paged_attention import PagedContext, attend
from alpamayo_ros.engine.flow.paged_cache import LayerCache, PagedPrefixes

HEADS, KV_HEADS, DIM, BLOCKS = 4, 2, 8, 12


def dense(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """[T, heads, dim] over [L, kv_heads, dim]."""
    groups = HEADS // KV_HEADS
    mixed = functional.scaled_dot_product_attention(
        query.transpose(0, 1),
        keys.repeat_interleave(groups, 1).transpose(0, 1),
        values.repeat_interleave(groups, 1).transpose(0, 1),
    )
    return mixed.transpose(0, 1)


@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    samples=st.integers(1, 3),
    tokens=st.integers(1, 5),
    size=st.sampled_from([4, 16]),
    scale=st.sampled_from([1.0, 20.0]),
    seed=st.integers(0, 1000),
)
def test_it_is_attention_to_everything_at_once(
    lengths: list[int], samples: int, tokens: int, size: int, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    layer = LayerCache(*(torch.randn(BLOCKS * 3, size, KV_HEADS, DIM, generator=generator) for _ in range(2)))
    prefixes = PagedPrefixes.empty(len(lengths), 10, torch.device("cpu"))
    unread = torch.ones(BLOCKS * 3, size, dtype=torch.bool)
    free = torch.randperm(BLOCKS * 3, generator=generator).tolist()
    wanted = []
    for row, length in enumerate(lengths):
        blocks = [free.pop() for _ in range(math.ceil(length / size))]
        prefixes.block_table[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        prefixes.lengths[row] = length
        for place in range(length):
            unread[blocks[place // size], place % size] = False
        wanted.append([each[blocks].flatten(0, 1)[:length].clone() for each in (layer.keys, layer.values)])
    for cache in (layer.keys, layer.values):
        cache[unread] = torch.nan
    shape = (len(lengths), samples, tokens)
    query = torch.randn(*shape, HEADS, DIM, generator=generator) * scale
    key, value = (torch.randn(*shape, KV_HEADS, DIM, generator=generator) for _ in range(2))
    angles = torch.zeros(len(lengths), tokens, DIM)
    context = PagedContext(prefixes, [layer], samples, angles, angles, attend)
    mixed = context.attend(0, query, key, value)
    for row, (keys, values) in enumerate(wanted):
        for sample in range(samples):
            own = torch.cat((keys, key[row, sample])), torch.cat((values, value[row, sample]))
            torch.testing.assert_close(mixed[row, sample], dense(query[row, sample], *own), atol=1e-5, rtol=1e-4)
