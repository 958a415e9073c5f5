"""Every layout of vLLM's cache that is known."""

from __future__ import annotations

import pytest
import torch

from alpamayo_ros.engine.vllm.kv_layout import LAYOUTS

KV_HEADS, DIM = 2, 8


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
