"""Qwen3-VL over the paged cache: prompts by eager launches, a few tokens by captured graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.native.attention import PromptAttention, causal_attention
from alpamayo_ros.engine.native.decode_step import MOST_LOGITS, DecodeStep
from alpamayo_ros.engine.native.drawing import DeviceDraw, drawing_for
from alpamayo_ros.engine.native.following import Following
from alpamayo_ros.engine.native.kv_cache import BLOCK_SIZE, KVPool, PagedCache
from alpamayo_ros.engine.native.sizes import Sizes
from alpamayo_ros.engine.native.text_model import Deepstack, NewTokens, TextModel
from alpamayo_ros.engine.native.vision_tower import VisionTower
from alpamayo_ros.engine.replayed import GraphMemory
from alpamayo_ros.engine.sampling import Key
from alpamayo_ros.model.backbone import ImageFeatures, PromptBatch
from alpamayo_ros.model.images import ImagePatches

CAPTURED_ROWS = (1, 6, 16)  # and the most that there can be
CAPTURED_TOKENS = (1, 3)  # 3: a last token and the two that close a reasoning
# rows, tokens: a prompt's rest without its route and a reasoning after it, alone and beside those three tokens
CAPTURED_RESTS = ((1, 96), (2, 64), (2, 96))


class NativeBackbone:
    """Reads prompts and tokens into the pool's blocks.

    Args:
        text, vision: The model's two halves.
        pool: The cache's memory.
        sizes: Of rows, and how many there may be side by side.
        forbidden: Token ids that `Following` never draws.
    """

    def __init__(self, text: TextModel, vision: VisionTower, pool: KVPool, sizes: Sizes, forbidden: range) -> None:
        self._text = text
        self._vision = vision
        self._pool = pool
        device = pool.layers[0].keys.device
        self._attend = causal_attention(device)
        self._attend_to_itself = PromptAttention(sizes.prompt_tokens)
        self._max_blocks = math.ceil(sizes.sequence_tokens / BLOCK_SIZE)
        counts = sorted({min(count, sizes.samples) for count in (*CAPTURED_ROWS, sizes.samples)})
        self._forbidden = forbidden
        self._draw = DeviceDraw(device)
        draw = drawing_for(device)
        shapes = [(rows, tokens) for tokens in CAPTURED_TOKENS for rows in counts] + list(CAPTURED_RESTS)
        self._steps = [
            DecodeStep(text, pool, self._attend, draw, forbidden, *shape, self._max_blocks) for shape in shapes
        ]

    @property
    def steps(self) -> int:
        """How many are rehearsed and captured."""
        return len(self._steps)

    def plan(self) -> None:
        """Plan the prompts' attention on CUDA, for the calling thread."""
        layer = self._pool.layers[0]
        keys, values = (memory.flatten(0, 1) for memory in (layer.keys, layer.values))
        self._attend_to_itself.plan(self._text.geometry.num_attention_heads, keys, values)

    def rehearse(self, done: Callable[[], object]) -> None:
        """Run the steps once, on the current stream, for what is compiled on first use; `done` is called after each."""
        for step in self._steps:
            step.rehearse()
            done()

    def capture(self, memory: GraphMemory, done: Callable[[], object]) -> None:
        """Record the steps on CUDA, the largest first: it sizes the memory that they share."""
        for step in reversed(self._steps):
            step.capture(memory)
            done()

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        """Run the vision tower over images; each attends only to itself."""
        return self._vision.encode(patches)

    def encode_each(self, patches: Sequence[ImagePatches]) -> list[ImageFeatures]:
        """Encode single images, each as if it were alone."""
        return self._vision.encode_each(patches)

    def read(self, batch: PromptBatch, cache: PagedCache, logits: int = 1) -> Tensor:
        """Read prompts into an empty cache, one after the other; see Backbone in model/backbone.py."""
        starts = cache.open(batch.padding)
        images = iter(batch.features)
        rows = [
            self._read_row(batch, row, empty, start, images, logits)
            for row, (empty, start) in enumerate(zip(batch.padding, starts, strict=True))
        ]
        cache.grow(batch.length)
        return torch.stack(rows)

    def extend(self, batch: PromptBatch, cache: PagedCache, token_ids: Tensor, logits: int = 1) -> Tensor:
        """Read further tokens [B, n] after what the cache holds; see Backbone in model/backbone.py."""
        count = token_ids.shape[1]
        fitting = self._steps_for(token_ids, logits)
        if fitting:
            result = fitting[0].run(cache, token_ids, batch.rope_deltas)[:, count - logits : count]
        else:
            result = self._read_more(batch, cache, token_ids, logits)
        cache.grow(count)
        return result

    def extend_both(
        self, batch: PromptBatch, caches: tuple[PagedCache, PagedCache], token_ids: tuple[Tensor, Tensor]
    ) -> None:
        """Read tokens [1, n] into each of two caches of one row, in one pass.

        Args:
            batch: Whose row both go on with.
            caches: They may share blocks.
            token_ids: Of each. The fewer ones are filled up; what is read behind them is overwritten later.
        """
        if not self._steps_for(max(token_ids, key=lambda tokens: tokens.shape[1]).expand(2, -1), 0):
            for cache, tokens in zip(caches, token_ids, strict=True):
                self.extend(batch, cache, tokens, logits=0)
            return
        counts = [tokens.shape[1] for tokens in token_ids]
        columns = torch.zeros(2, max(counts), dtype=torch.int64)
        for row, tokens in enumerate(token_ids):
            columns[row, : counts[row]] = tokens[0]
        both = PagedCache.beside(caches, columns.shape[1])
        deltas = tuple(batch.rope_deltas[0] - (both.length - cache.length) for cache in caches)
        self.extend(replace(batch.take([0, 0]), rope_deltas=deltas), both, columns, logits=0)
        for cache, count in zip(caches, counts, strict=True):
            cache.grow(count)

    def follow(
        self,
        batch: PromptBatch,
        cache: PagedCache,
        token_ids: Tensor,
        keys: Sequence[Key],
        temperature: float,
        top_p: float,
    ) -> Following:
        """Read a token per row [B, 1] and draw the next ones on the device; each step after it reads what was drawn.

        The caller counts the cache's columns.
        """
        step = self._steps_for(token_ids, 1)[0]
        step.begin(cache, token_ids, batch.rope_deltas, keys, temperature, top_p)
        return Following(step, step.go_on(len(keys)))

    def follow_prompt(
        self,
        batch: PromptBatch,
        cache: PagedCache,
        logits: Tensor,
        keys: Sequence[Key],
        temperature: float,
        top_p: float,
    ) -> Following:
        """Draw from what was read last, logits [B, V], and be ready to read that: see `follow`.

        All of it is queued, also while the prompt is still being read.
        """
        drawn = self._draw.queue(logits, temperature, top_p, keys, self._forbidden)[:, None]
        next_keys = [(seed, sample, place + 1) for seed, sample, place in keys]
        step = self._steps_for(drawn, 1)[0]
        step.begin(cache, drawn, batch.rope_deltas, next_keys, temperature, top_p)
        return Following(step, drawn[:, 0])

    def _steps_for(self, token_ids: Tensor, logits: int) -> list[DecodeStep]:
        """Those that can read these tokens, the smallest first."""
        rows, count = token_ids.shape
        steps = [step for step in self._steps if step.tokens >= count and step.rows >= rows]
        return [step for step in steps if logits == 0 or step.tokens <= MOST_LOGITS]

    def _read_row(
        self, batch: PromptBatch, row: int, empty: int, start: int, images: Iterator[ImageFeatures], logits: int
    ) -> Tensor:
        """The logits [logits, V] after one prompt, whose tokens come to lie at `start` of the pool."""
        token_ids = batch.token_ids[row, empty:]
        hidden = self._text.embed(token_ids)
        places = batch.image_columns[row] - empty
        own: list[ImageFeatures] = []
        while sum(len(image.embeddings) for image in own) < len(places):
            own.append(next(images))
        deepstack = None
        if own:
            hidden[places] = torch.cat([image.embeddings for image in own]).to(hidden.dtype)
            deepstack = Deepstack(places, torch.cat([image.deepstack for image in own], 1).to(hidden.dtype))
        end = start + len(token_ids)

        def attend(layer: LayerCache, new: NewTokens) -> Tensor:
            query = new.write(layer)
            keys, values = (memory.flatten(0, 1)[start:] for memory in (layer.keys, layer.values))
            return self._attend_to_itself(query, keys, values)

        rotary = self._text.rotary(batch.positions[:, row, empty:])
        slots = torch.arange(start, end, device=hidden.device)
        hidden = self._text.run(hidden, rotary, self._pool.layers, slots, attend, deepstack)
        return self._text.logits(hidden[-logits:])

    def _read_more(self, batch: PromptBatch, cache: PagedCache, token_ids: Tensor, logits: int) -> Tensor:
        """[B, logits, V]."""
        rows, count = token_ids.shape
        device = batch.token_ids.device
        token_ids = token_ids.to(device)
        table = cache.table(self._max_blocks).to(device)
        lengths = torch.tensor(cache.lengths(), device=device)
        index = torch.arange(count, device=device)
        column = lengths[:, None] + index
        slots = (table.gather(1, column // BLOCK_SIZE) * BLOCK_SIZE + column % BLOCK_SIZE).flatten()
        delta = torch.tensor(batch.rope_deltas, device=device)[:, None]
        before = lengths.int()

        def attend(layer: LayerCache, new: NewTokens) -> Tensor:
            by_row = new.write(layer).unflatten(0, (rows, count))
            return self._attend(by_row, layer.keys, layer.values, table, before, None).flatten(0, 1)

        rotary = self._text.rotary((cache.length + index + delta).flatten())
        hidden = self._text.embed(token_ids.flatten())
        hidden = self._text.run(hidden, rotary, self._pool.layers, slots.long(), attend)
        if logits == 0:
            return torch.empty(rows, 0, self._text.vocabulary_size, device=device)
        last = hidden.unflatten(0, (rows, count))[:, -logits:]
        return self._text.logits(last.flatten(0, 1)).unflatten(0, (rows, logits))
