"""What the expert reads of a backbone's paged KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class KVPrefix:
    """A sequence in the cache that the expert reads where it lies."""

    block_ids: tuple[int, ...]
    length: int  # tokens; the last block holds others, or none, behind it
    first_position: int  # the rotary position of the first action token


@dataclass(frozen=True, eq=False)
class LayerCache:
    """One layer's keys and values, views of the backbone's own memory."""

    keys: Tensor  # [blocks, block_size, kv_heads, head_dim]
    values: Tensor


@dataclass(frozen=True, eq=False)
class PagedPrefixes:
    """Where R prefixes lie; static buffers, so that a captured graph reads the numbers of each tick."""

    block_table: Tensor  # [R, blocks at most] int32; behind a prefix's last block nothing is read
    lengths: Tensor  # [R] int32
    first_positions: Tensor  # [R] int64

    @classmethod
    def empty(cls, rows: int, max_blocks: int, device: torch.device) -> PagedPrefixes:
        """Room for R prefixes; each is one token in block 0 until it is filled."""
        return cls(
            torch.zeros(rows, max_blocks, dtype=torch.int32, device=device),
            torch.ones(rows, dtype=torch.int32, device=device),
            torch.zeros(rows, dtype=torch.int64, device=device),
        )
