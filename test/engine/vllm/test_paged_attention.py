"""Attention over paged blocks, merged with a sample's own tokens: what one softmax over everything gives."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from alpamayo_ros.engine.vllm.kv_layout import LAYOUTS, LayerCache
from alpamayo_ros.engine.vllm.paged_attention import PagedContext, PagedPrefixes, attend_to_own, attend_to_prefix

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
    context = PagedContext(prefixes, [layer], samples, angles, angles, attend_to_prefix, attend_to_own)
    mixed = context.attend(0, query, key, value)
    for row, (keys, values) in enumerate(wanted):
        for sample in range(samples):
            own = torch.cat((keys, key[row, sample])), torch.cat((values, value[row, sample]))
            torch.testing.assert_close(mixed[row, sample], dense(query[row, sample], *own), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_a_view_that_reads_what_lies_there(name: str) -> None:
    blocks, size = 5, 16
    views, _ = LAYOUTS[name]
    keys, values = (torch.randn(blocks, size, KV_HEADS, DIM) for _ in range(2))
    by_name = {
        "[blocks, 2, block_size, heads, dim]": lambda: torch.stack((keys, values), 1),
        "[2, blocks, block_size, heads, dim]": lambda: torch.stack((keys, values)),
        "[blocks, heads, block_size, 2 dim]": lambda: torch.cat((keys, values), -1).transpose(1, 2),
        "[blocks, heads, keys [dim, block_size] and values [block_size, dim]]": lambda: torch.cat(
            (keys.permute(0, 2, 3, 1).flatten(2), values.transpose(1, 2).flatten(2)), -1
        ).view(blocks, KV_HEADS, size, 2 * DIM),
    }
    cache = by_name[name]()
    read = views(cache, DIM)
    assert torch.equal(read[0], keys)
    assert torch.equal(read[1], values)
    assert all(view.untyped_storage().data_ptr() == cache.untyped_storage().data_ptr() for view in read)
    kind = "cpu" if "keys" in name else "cuda"
    matching = [other for other, (_, fits) in LAYOUTS.items() if fits(cache.shape, DIM, kind)]
    assert matching == [name]
