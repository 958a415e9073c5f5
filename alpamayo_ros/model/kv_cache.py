"""The backbone's KV cache: written in place by transformers, read in place by the action expert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


@dataclass(frozen=True, eq=False)
class Prefix:
    """What the action expert reads: B sequences of L tokens, each shared by one or more samples."""

    keys: tuple[Tensor, ...]  # per layer [B, kv_heads, L + room, head_dim], rotated; the room is the expert's to use
    values: tuple[Tensor, ...]  # likewise
    length: int  # L
    blocked: Tensor | None  # [B, L] bool: columns that nobody may read; None: every column is read
    first_position: Tensor  # [B] int64: the rotary position of the first action token

    @property
    def room(self) -> int:
        """Columns after the prefix."""
        return self.keys[0].shape[2] - self.length


class KVCache(Cache):
    """A cache whose memory is taken once, so that a token costs no copy of what is there already.

    Args:
        layers: of the backbone.
        capacity: tokens that the caller will write, plus the room that the expert needs after them.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self._layers = [_Layer(capacity) for _ in range(layers)]
        super().__init__(layers=list(self._layers))

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def length(self) -> int:
        """Tokens that are written."""
        return self._layers[0].length

    def written(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values [B, kv_heads, length, head_dim] of a layer, where they lie."""
        return self._layers[layer].written

    def truncate(self, length: int) -> None:
        """Forget the tokens from `length` on."""
        for layer in self._layers:
            layer.truncate(length)

    def branch(self, rows: Sequence[int], length: int, capacity: int) -> KVCache:
        """A cache of its own with the first `length` tokens of the given rows."""
        other = KVCache(len(self), capacity)
        index = torch.tensor(rows, device=self._layers[0].buffers[0].device)
        for mine, its in zip(self._layers, other._layers, strict=True):
            keys, values = mine.written
            its.update(keys[:, :, :length][index], values[:, :, :length][index])
        return other

    def prefix(self, ends: Sequence[int], padding: Sequence[int], rope_deltas: Sequence[int]) -> Prefix:
        """Hand the cache to the expert.

        Args:
            ends: per row, where its valid tokens end. One beyond what is written is allowed: NVIDIA's code gets there
                when `<|traj_future_start|>` is missing, with nothing masked.
            padding: per row, how many columns at its start are padding.
            rope_deltas: per row, rotary position minus column of the tokens after the prompt.
        """
        device = self._layers[0].buffers[0].device
        length = self.length
        blocked = None
        if any(padding) or any(end < length for end in ends):
            column = torch.arange(length, device=device)
            first = torch.tensor(padding, device=device)[:, None]
            end = torch.tensor(ends, device=device)[:, None]
            blocked = (column < first) | (column >= end)
        positions = [end + delta for end, delta in zip(ends, rope_deltas, strict=True)]
        return Prefix(
            keys=tuple(layer.buffers[0] for layer in self._layers),
            values=tuple(layer.buffers[1] for layer in self._layers),
            length=length,
            blocked=blocked,
            first_position=torch.tensor(positions, device=device),
        )


class _Layer(DynamicLayer):
    """One layer: `keys` and `values`, which transformers reads, are views of the written part of the buffers."""

    buffers: tuple[Tensor, Tensor]  # [B, kv_heads, capacity, head_dim]

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity

    @property
    def length(self) -> int:
        """Tokens that are written."""
        return int(self.keys.shape[2]) if self.is_initialized and self.keys is not None else 0

    @property
    def written(self) -> tuple[Tensor, Tensor]:
        """Keys and values, as far as they are written."""
        keys, values = self.buffers
        return keys[:, :, : self.length], values[:, :, : self.length]

    def lazy_initialization(self, key_states: Tensor, *_: Any) -> None:
        """Take the memory."""
        batch, heads, _length, dim = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        keys, values = (key_states.new_empty(batch, heads, self._capacity, dim) for _ in range(2))
        self.buffers = (keys, values)
        self.is_initialized = True
        self.truncate(0)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append; called by transformers."""
        if not self.is_initialized:
            self.lazy_initialization(key_states)
        start, end = self.length, self.length + key_states.shape[2]
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:, :, start:end] = states
        self.truncate(end)
        return self.written

    def truncate(self, length: int) -> None:
        """Forget the tokens from `length` on."""
        self.keys, self.values = (buffer[:, :, :length] for buffer in self.buffers)
