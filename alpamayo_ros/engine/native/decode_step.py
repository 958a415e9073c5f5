"""A few tokens for each of R rows: over static buffers, so that a captured graph does it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.native.attention import AttendCausal, attention_of_one
from alpamayo_ros.engine.native.drawing import DrawRows
from alpamayo_ros.engine.native.kv_cache import BLOCK_SIZE, KVPool, PagedCache
from alpamayo_ros.engine.native.philox import token_key
from alpamayo_ros.engine.native.text_model import NewTokens, TextModel
from alpamayo_ros.engine.replayed import GraphMemory, Replayed
from alpamayo_ros.engine.sampling import Key
from alpamayo_ros.model.to_device import to_device

NO_KEY: Key = (0, 0, 0)
MOST_LOGITS = 8  # tokens of a row: each takes as much memory as the vocabulary is large


class DecodeStep:
    """Reads M tokens per row into the cache; with M = 1 it draws the next ones as well, and can go on with them.

    With more than MOST_LOGITS tokens it says nothing of what comes next: such are read for their keys and values.

    Fewer rows than R may be asked for: the others read token 0 into block 0, which nobody reads. So does what stands
    behind the blocks that a row has.

    Args:
        text: The layers.
        pool: The cache's memory.
        attend: Attention to it.
        draw: Draws the next tokens.
        forbidden: Token ids that are never drawn.
        rows: R.
        tokens: M.
        max_blocks: Of a row.
    """

    def __init__(
        self,
        text: TextModel,
        pool: KVPool,
        attend: AttendCausal,
        draw: DrawRows,
        forbidden: range,
        rows: int,
        tokens: int,
        max_blocks: int,
    ) -> None:
        self.rows = rows
        self.tokens = tokens
        self._text = text
        self._pool = pool
        self._attend = attend
        self._draw = draw
        self._forbidden = forbidden
        device = pool.layers[0].keys.device
        self._attend_one = attention_of_one(device) if rows == tokens == 1 else None
        self._token_ids = torch.zeros(rows, tokens, dtype=torch.int64, device=device)
        self._numbers = torch.zeros(4, rows, dtype=torch.int64, device=device)  # position, tokens before, words of key
        self._settings = torch.zeros(2, device=device)  # temperature and top_p
        self._next = torch.tensor([[1], [1], [0], [1]], device=device)  # what a token later the numbers are higher by
        # wider than any row, so that what stands behind the longest one is looked up as block 0
        width = max_blocks + math.ceil(tokens / BLOCK_SIZE)
        self._table = torch.zeros(rows, width, dtype=torch.int32, device=device)
        self._shared = torch.zeros(1, dtype=torch.int32, device=device) if rows > 1 else None  # tokens
        self._filled_from: PagedCache | None = None
        self._replayed = Replayed[tuple[Tensor, Tensor]]()

    def rehearse(self) -> None:
        """Do the step once: it compiles what is compiled on first use."""
        self._step()

    def capture(self, memory: GraphMemory) -> None:
        """Record the step on CUDA."""
        self._replayed.capture(self._step, memory)

    def run(self, cache: PagedCache, token_ids: Tensor, rope_deltas: Sequence[int]) -> Tensor:
        """Read tokens [rows of the cache, M or less]; the cache is as long afterwards as before: the caller counts.

        Returns:
            [rows of the cache, M, V] float32, undefined behind the tokens that there are, or [rows of the cache, 0, V]
            where M is above MOST_LOGITS. The next run overwrites it.
        """
        self._fill(cache, token_ids, rope_deltas, [NO_KEY] * len(cache.rows))
        return self._replayed(self._step)[0][: len(cache.rows)]

    def begin(
        self,
        cache: PagedCache,
        token_ids: Tensor,
        rope_deltas: Sequence[int],
        keys: Sequence[Key],
        temperature: float,
        top_p: float,
    ) -> None:
        """Get `go_on` ready to read a token per row [rows of the cache, 1], and to draw the next ones by these keys."""
        self._settings.copy_(to_device(torch.tensor([temperature, top_p]), self._settings.device))
        self._fill(cache, token_ids, rope_deltas, keys)

    def go_on(self, rows: int) -> Tensor:
        """Read what stands ready, and draw the next ones, [rows] int64 on the device, which then stand ready.

        Each row's next key is that of its next place.
        """
        return self._replayed(self._step)[1][:rows]

    def _fill(self, cache: PagedCache, token_ids: Tensor, rope_deltas: Sequence[int], keys: Sequence[Key]) -> None:
        (count, tokens), device = token_ids.shape, self._table.device
        if self._filled_from is not cache:
            self._table[:count].copy_(to_device(cache.table(self._table.shape[1]), device))
            self._table[count:].zero_()
            if self._shared is not None:
                self._shared.fill_(cache.shared())
            self._token_ids.zero_()
            self._numbers.zero_()
            self._filled_from = cache
        positions = [cache.length + delta for delta in rope_deltas]
        words = zip(*(token_key(*key) for key in keys), strict=True)
        numbers = torch.tensor([positions, cache.lengths(), *words])
        self._numbers[:, :count].copy_(to_device(numbers, device))
        self._token_ids[:count, :tokens].copy_(to_device(token_ids, device))

    def _step(self) -> tuple[Tensor, Tensor]:
        position, before, *words = self._numbers
        index = torch.arange(self.tokens, device=before.device)
        column = before[:, None] + index
        number = (column // BLOCK_SIZE).clamp(max=self._table.shape[1] - 1)
        slots = (self._table.gather(1, number) * BLOCK_SIZE + column % BLOCK_SIZE).flatten()
        lengths = before.int()

        def attend(layer: LayerCache, new: NewTokens) -> Tensor:
            if self._attend_one is not None:
                mixed = self._attend_one(layer, new, self._table, lengths)
                if mixed is not None:
                    return mixed
            by_row = new.write(layer).unflatten(0, (self.rows, self.tokens))
            return self._attend(by_row, layer.keys, layer.values, self._table, lengths, self._shared).flatten(0, 1)

        text, layers = self._text, self._pool.layers
        rotary = text.rotary((position[:, None] + index).flatten())
        hidden = text.run(text.embed(self._token_ids.flatten()), rotary, layers, slots.long(), attend)
        if self.tokens > MOST_LOGITS:
            return torch.empty(self.rows, 0, text.vocabulary_size, device=hidden.device), self._token_ids
        logits = text.logits(hidden).unflatten(0, (self.rows, self.tokens))
        if self.tokens > 1:
            return logits, self._token_ids
        drawn = self._draw(logits[:, 0], torch.stack(words, 1), self._settings, self._forbidden)
        self._token_ids.copy_(drawn[:, None])
        self._numbers += self._next
        return logits, drawn
