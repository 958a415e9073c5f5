"""The KV cache in blocks: memory that is taken once, given out tick by tick, and shared by branches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.flow.paged_cache import KVPrefix, LayerCache
from alpamayo_ros.engine.native.attention import PLANNED_STEP
from alpamayo_ros.model.geometry import DecoderGeometry
from alpamayo_ros.model.to_device import to_device

BLOCK_SIZE = 16  # tokens


class KVPool:
    """All blocks of all layers. Block 0 is never given out: rows of a graph that stand for nothing write there.

    Blocks are given out in order, so that those of one request lie side by side, and all are given back at once when a
    tick begins.
    """

    def __init__(self, geometry: DecoderGeometry, tokens: int, device: torch.device, dtype: torch.dtype) -> None:
        self.blocks = 1 + math.ceil(tokens / BLOCK_SIZE)
        # layers, keys and values, blocks, tokens, heads, dim; a prompt's attention looks behind the last block
        self._memory = torch.zeros(
            geometry.num_hidden_layers,
            2,
            self.blocks + PLANNED_STEP // BLOCK_SIZE,
            BLOCK_SIZE,
            geometry.num_key_value_heads,
            geometry.head_dim,
            device=device,
            dtype=dtype,
        )
        self.layers = [LayerCache(layer[0], layer[1]) for layer in self._memory]
        self._next = 1

    @property
    def tokens(self) -> int:
        """That one tick may have at most."""
        return (self.blocks - 1) * BLOCK_SIZE

    def give_back_all(self) -> None:
        """A tick begins: nothing of the one before is read any more."""
        self._next = 1

    def take(self, count: int) -> range:
        """So many blocks, side by side.

        Raises:
            EngineError: there are fewer left.
        """
        taken = range(self._next, self._next + count)
        if taken.stop > self.blocks:
            gib = self._memory.numel() * self._memory.itemsize / 2**30
            raise EngineError(
                f"the KV cache has {self.blocks - self._next} blocks of {BLOCK_SIZE} tokens left, and the tick needs "
                f"{count} more; ask for fewer samples or reasoning tokens, or set engine.kv_cache_memory above "
                f"{gib:.3g} GiB"
            )
        self._next = taken.stop
        return taken

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole blocks of every layer."""
        to, of = to_device(torch.tensor([targets, sources]), self._memory.device)
        self._memory[:, :, to] = self._memory[:, :, of]


class PagedCache:
    """Rows of tokens in the pool. A row's tokens begin at its first block, whatever padding its batch has.

    Args:
        pool: The memory.
        capacity: Columns that will be written.
    """

    def __init__(self, pool: KVPool, capacity: int) -> None:
        self.length = 0  # columns
        self.padding: tuple[int, ...] = ()  # per row, columns before its first token
        self.rows: list[tuple[int, ...]] = []  # block ids
        self._pool = pool
        self._capacity = capacity

    def open(self, padding: Sequence[int]) -> list[int]:
        """Take the memory of so many rows.

        Returns:
            Per row, where its tokens begin when all blocks are seen as one sequence of tokens.
        """
        self.padding = tuple(padding)
        self.rows = [tuple(self._pool.take(self._blocks(self._capacity - empty))) for empty in padding]
        return [blocks[0] * BLOCK_SIZE for blocks in self.rows]

    def lengths(self) -> list[int]:
        """Tokens of each row."""
        return [self.length - empty for empty in self.padding]

    def shared(self) -> int:
        """How many tokens at their beginning several rows have in the same blocks, which nobody writes any more."""
        if len(self.rows) == 1:
            return 0
        alike = [len(set(blocks)) == 1 for blocks in zip(*self.rows, strict=False)]
        return (alike.index(False) if False in alike else len(alike)) * BLOCK_SIZE

    def table(self, width: int) -> Tensor:
        """The block table [rows, width] int32, on the host."""
        table = torch.zeros(len(self.rows), width, dtype=torch.int32)
        for row, blocks in enumerate(self.rows):
            table[row, : len(blocks)] = torch.tensor(blocks, dtype=torch.int32)
        return table

    def grow(self, columns: int) -> None:
        """Count columns that were written."""
        self.length += columns
        assert self.length <= self._capacity, "the engine asks for what it writes"

    def truncate(self, length: int) -> None:
        """Forget the columns from `length` on."""
        self.length = length

    def branch(self, rows: Sequence[int], length: int, capacity: int) -> PagedCache:
        """A cache that begins with the first `length` columns of these rows: full blocks are shared."""
        other = PagedCache(self._pool, capacity)
        other.length = length
        other.padding = tuple(self.padding[row] for row in rows)
        sources, targets = [], []
        for row, empty in zip(rows, other.padding, strict=True):
            shared, rest = divmod(length - empty, BLOCK_SIZE)
            own = self._pool.take(self._blocks(capacity - empty) - shared)
            if rest:
                sources.append(self.rows[row][shared])
                targets.append(own[0])
            other.rows.append((*self.rows[row][:shared], *own))
        if sources:
            self._pool.copy(sources, targets)
        return other

    @classmethod
    def beside(cls, caches: Sequence[PagedCache], columns: int) -> PagedCache:
        """The rows of caches of one pool in one, the shorter ones after more padding, for so many columns more."""
        length = max(cache.length for cache in caches)
        other = cls(caches[0]._pool, length + columns)
        other.length = length
        other.padding = tuple(length - tokens for cache in caches for tokens in cache.lengths())
        other.rows = [blocks for cache in caches for blocks in cache.rows]
        return other

    def prefix(self, ends: Sequence[int], padding: Sequence[int], rope_deltas: Sequence[int]) -> list[KVPrefix]:
        """Hand the rows to the expert; see KVCache."""
        prefixes = []
        for blocks, end, empty, delta in zip(self.rows, ends, padding, rope_deltas, strict=True):
            length = min(end, self.length) - empty
            prefixes.append(KVPrefix(blocks[: self._blocks(length)], length, end + delta))
        return prefixes

    def written(self, layer: int) -> tuple[Tensor, Tensor]:
        """Copies of the keys and values [rows, kv_heads, length, head_dim] of a layer; 0 at padding."""
        cache = self._pool.layers[layer]
        copies = []
        for memory in (cache.keys, cache.values):
            columns = memory.new_zeros(len(self.rows), self.length, *memory.shape[2:])
            for row, (blocks, empty) in enumerate(zip(self.rows, self.padding, strict=True)):
                columns[row, empty:] = memory[list(blocks)].flatten(0, 1)[: self.length - empty]
            copies.append(columns.transpose(1, 2))
        return copies[0], copies[1]

    @staticmethod
    def _blocks(tokens: int) -> int:
        return math.ceil(tokens / BLOCK_SIZE)
