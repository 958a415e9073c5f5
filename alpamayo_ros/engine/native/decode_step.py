"""One token for each of R rows: over static buffers, so that a captured graph does it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.native.attention import AttendCausal
from alpamayo_ros.engine.native.kv_cache import BLOCK_SIZE, KVPool, PagedCache
from alpamayo_ros.engine.native.text_model import TextModel
from alpamayo_ros.engine.replayed import GraphMemory, Replayed


class DecodeStep:
    """Reads a token per row into the cache.

    Fewer rows than R may be asked for: the others read token 0 into block 0, which nobody reads.

    Args:
        text: The layers.
        pool: The cache's memory.
        attend: Attention to it.
        rows: R.
        max_blocks: Of a row.
    """

    def __init__(self, text: TextModel, pool: KVPool, attend: AttendCausal, rows: int, max_blocks: int) -> None:
        self.rows = rows
        self._text = text
        self._pool = pool
        self._attend = attend
        device = pool.layers[0].keys.device
        self._inputs = torch.zeros(3, rows, dtype=torch.int64, device=device)  # token, rotary position, length before
        self._table = torch.zeros(rows, max_blocks, dtype=torch.int32, device=device)
        self._filled_from: PagedCache | None = None
        self._replayed = Replayed(self._step)

    def capture(self, memory: GraphMemory) -> None:
        """Record the step on CUDA."""
        self._replayed.capture(memory)

    def run(self, cache: PagedCache, token_ids: Tensor, rope_deltas: Sequence[int]) -> Tensor:
        """Read a token per row of the cache, which is as many columns longer afterwards as before: the caller's count.

        Returns:
            [rows of the cache, V] float32; the next run overwrites it.
        """
        count = len(cache.rows)
        if self._filled_from is not cache:
            self._table[:count].copy_(cache.table(self._table.shape[1]), non_blocking=True)
            self._table[count:].zero_()
            self._inputs.zero_()
            self._filled_from = cache
        numbers = torch.tensor([[cache.length + delta for delta in rope_deltas], cache.lengths()])
        self._inputs[1:, :count].copy_(numbers, non_blocking=True)
        self._inputs[0, :count].copy_(token_ids)
        return self._replayed()[:count]

    def _step(self) -> Tensor:
        token_ids, positions, before = self._inputs
        block = self._table.gather(1, (before // BLOCK_SIZE)[:, None])[:, 0].long()
        slots = block * BLOCK_SIZE + before % BLOCK_SIZE
        lengths = before.int()

        def attend(layer: LayerCache, query: Tensor) -> Tensor:
            return self._attend(query[:, None], layer.keys, layer.values, self._table, lengths)[:, 0]

        text, layers = self._text, self._pool.layers
        return text.logits(text.run(text.embed(token_ids), text.rotary(positions), layers, slots, attend))
