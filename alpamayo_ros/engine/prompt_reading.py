"""Reading the prompts of ticks into the model's cache, with what is known of the text after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.engine.limits import CLOSING_TOKENS
from alpamayo_ros.engine.options import check_fixed_length
from alpamayo_ros.engine.reasoning import Text
from alpamayo_ros.engine.resident_model import ResidentModel
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.tick_prompt import TickPrompts
from alpamayo_ros.engine.ticks import Tick, rows_of
from alpamayo_ros.model.backbone import PromptBatch, batch_prompts
from alpamayo_ros.model.to_device import to_device


@dataclass(frozen=True, eq=False)
class Read:
    """Prompts, with what was known of the text after them, in the cache."""

    batch: PromptBatch  # a row per text
    cache: Any  # the model's own
    logits: Tensor  # [rows, 1 + drafts, V]: what comes after the prompt, and after each draft
    fixed: Sequence[Text]  # one per row, where nothing is to be written
    drafts: Sequence[int]  # that were read ahead, for one row alone


class PromptReader:
    """Reads the prompts of ticks whose options are alike; on a GPU it is queued, and nobody waits for it.

    Args:
        model: Reads them.
        prompts: Says what stands in a reasoning's place that isn't written.
        info: The engine's limits.
    """

    def __init__(self, model: ResidentModel, prompts: TickPrompts, info: EngineInfo) -> None:
        self._model = model
        self._prompts = prompts
        self._info = info

    def __call__(self, ticks: Sequence[Tick], clock: StageClock) -> Read:
        """One row per tick, or with independent reasoning one per sample.

        Raises:
            EngineError: a given reasoning that is too long.
        """
        model, vocabulary, options = self._model, self._model.vocabulary, ticks[0].options
        copies = rows_of(options)
        rows = [index for index in range(len(ticks)) for _ in range(copies)]
        fixed = [self._prompts.fixed_reasoning(tick.options) for tick in ticks]
        for tick, text in zip(ticks, fixed, strict=True):
            if text is not None:
                check_fixed_length(len(tick.prompt), len(text.token_ids), self._info)
        drafts = self._drafts(options) if len(rows) == 1 and fixed == [None] else ()
        ahead = [drafts if text is None else text.token_ids for text in fixed]
        longest = options.max_reasoning_tokens + CLOSING_TOKENS if fixed[0] is None else 0
        room = model.room(options.num_samples // copies)
        with clock.stage("prefill"):
            prompts = [
                replace(tick.prompt, token_ids=(*tick.prompt.token_ids, *tokens))
                for tick, tokens in zip(ticks, ahead, strict=True)
            ]
            batch = batch_prompts(prompts, [tick.features for tick in ticks], vocabulary.pad, model.device)
            capacity = batch.length - len(drafts) + longest + room  # drafts are part of what is written
            cache = model.new_cache(capacity if copies == 1 else batch.length)
            logits = model.backbone.read(batch, cache, 1 + len(drafts))
            if copies > 1:
                cache, batch = cache.branch(rows, batch.length, capacity), batch.take(rows)
                logits = logits[to_device(torch.tensor(rows), model.device)]
        return Read(batch, cache, logits, [text for text in fixed if text is not None], drafts)

    def _drafts(self, options: SamplingOptions) -> tuple[int, ...]:
        """As many as can be of use, up to the first that is no token."""
        drafts = options.draft_token_ids[: options.max_reasoning_tokens + CLOSING_TOKENS]
        unknown = [place for place, token in enumerate(drafts) if not 0 <= token < self._model.vocabulary.size]
        return drafts[: unknown[0]] if unknown else drafts
