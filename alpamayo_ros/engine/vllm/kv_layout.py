"""How vLLM lays keys and values out in its cache: asked for, proved by a sentinel, and read as one kind of view.

This file alone knows layouts. Everything else sees keys and values as [blocks, block_size, kv_heads, head_dim].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.flow.paged_cache import LayerCache

Views = Callable[[Tensor, int], tuple[Tensor, Tensor]]  # cache tensor, head_dim -> keys, values


def _blocks_then_kv(cache: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    return cache[:, 0], cache[:, 1]


def _kv_then_blocks(cache: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    return cache[0], cache[1]


def _packed(cache: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    by_token = cache.transpose(1, 2)
    return by_token[..., :head_dim], by_token[..., head_dim:]


def _cpu_transposed_keys(cache: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    blocks, heads, size, _ = cache.shape
    halves = cache.view(blocks, heads, 2, size * head_dim)
    keys = halves[:, :, 0].view(blocks, heads, head_dim, size).permute(0, 3, 1, 2)
    return keys, halves[:, :, 1].view(blocks, heads, size, head_dim).transpose(1, 2)


# name: the views, and whether a layer's cache of this shape can have that layout
LAYOUTS: dict[str, tuple[Views, Callable[[Sequence[int], int, str], bool]]] = {
    "[blocks, 2, block_size, heads, dim]": (_blocks_then_kv, lambda shape, dim, _: len(shape) == 5 and shape[1] == 2),
    "[2, blocks, block_size, heads, dim]": (_kv_then_blocks, lambda shape, dim, _: len(shape) == 5 and shape[0] == 2),
    "[blocks, heads, block_size, 2 dim]": (
        _packed,
        lambda shape, dim, device: len(shape) == 4 and shape[3] == 2 * dim and device != "cpu",
    ),
    "[blocks, heads, keys [dim, block_size] and values [block_size, dim]]": (
        _cpu_transposed_keys,
        lambda shape, dim, device: len(shape) == 4 and shape[3] == 2 * dim and device == "cpu",
    ),
}


def read_layers(
    kv_caches: dict[str, Tensor], attention: dict[str, Any], head_dim: int, said: str
) -> tuple[list[LayerCache], str]:
    """Views of every layer's cache, in the order of the layers, each proved by a sentinel; and the layout's name.

    Args:
        kv_caches: The live tensors by layer name.
        attention: vLLM's attention layers by the same names.
        head_dim: Of keys and values.
        said: What vLLM itself says of its layout, for messages.

    Raises:
        EngineError: a layout that isn't known, or one that the sentinel doesn't confirm.
    """
    layers, layout = [], ""
    for name, cache in sorted(kv_caches.items(), key=lambda item: _layer_number(item[0])):
        layout = _layout_of(name, cache, head_dim, said)
        views, _ = LAYOUTS[layout]
        keys, values = views(cache, head_dim)
        layer = LayerCache(keys, values)
        _prove(name, layer, cache, attention[name], said)
        layers.append(layer)
    return layers, layout


def _layer_number(name: str) -> int:
    return int(re.findall(r"\.layers\.(\d+)\.", name)[-1])


def _layout_of(name: str, cache: Tensor, head_dim: int, said: str) -> str:
    found = [layout for layout, (_, fits) in LAYOUTS.items() if fits(cache.shape, head_dim, cache.device.type)]
    if len(found) != 1:
        raise EngineError(
            f"vLLM's KV cache of {name} has the shape {list(cache.shape)} ({said}); known are {', '.join(LAYOUTS)}"
        )
    return found[0]


def _prove(name: str, layer: LayerCache, cache: Tensor, attention: Any, said: str) -> None:
    """Let vLLM write known numbers into a block, at start-up when none is in use, and read them through the views."""
    block, size = 1, layer.keys.shape[1]
    heads, dim = layer.keys.shape[2:]
    places = torch.tensor([0, 1, size - 1], device=cache.device)
    generator = torch.Generator().manual_seed(0)
    key, value = (torch.randn(len(places), heads, dim, generator=generator).to(cache) for _ in range(2))
    write = getattr(attention.impl, "do_kv_cache_update", None)
    if write is None:
        raise EngineError(
            f"{type(attention.impl).__name__} of this vLLM can't write a sentinel; its layout is unproved"
        )
    write(attention, key, value, cache, block * size + places)
    if not (torch.equal(layer.keys[block, places], key) and torch.equal(layer.values[block, places], value)):
        raise EngineError(
            f"vLLM's KV cache of {name}, shape {list(cache.shape)} ({said}), isn't laid out as expected: what was "
            "written there was not read back"
        )
    layer.keys[block, places] = 0
    layer.values[block, places] = 0
