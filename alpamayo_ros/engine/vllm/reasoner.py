"""Lets vLLM write the reasoning of ticks, all rows of all ticks side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.engine.options import check_fixed_length
from alpamayo_ros.engine.reasoning import closed_text
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.tick_prompt import TickPrompts
from alpamayo_ros.engine.vllm.backbone import VllmBackbone, Writing, Written
from alpamayo_ros.engine.vllm.jobs import Draw
from alpamayo_ros.engine.vllm.tick import Reasoned, Tick
from alpamayo_ros.model.vocabulary import Vocabulary


class VllmReasoner:
    """Finish reasons and forced closings are those of the Reasoner in engine/reasoning.py."""

    def __init__(
        self, backbone: VllmBackbone, prompts: TickPrompts, vocabulary: Vocabulary, info: EngineInfo, clock: StageClock
    ) -> None:
        self._backbone = backbone
        self._prompts = prompts
        self._vocabulary = vocabulary
        self._info = info
        self._clock = clock

    def write(self, ticks: Sequence[Tick]) -> list[Reasoned]:
        """The reasoning of each tick. Each is said to have taken its share of the time.

        Raises:
            EngineError: a given text that is too long, or vLLM gave a request up.
        """
        fixed = [self._prompts.fixed_reasoning(tick.options) for tick in ticks]
        for tick, text in zip(ticks, fixed, strict=True):
            if text is not None:
                check_fixed_length(len(tick.prompt), len(text.token_ids), self._info)
        asked = [[] if text is not None else self._writings(tick) for tick, text in zip(ticks, fixed, strict=True)]
        writings = [writing for its in asked for writing in its]
        written = iter(self._write(writings, [tick for tick, its in zip(ticks, asked, strict=True) if its]))
        return [
            Reasoned((text,)) if text is not None else self._closed(tick, [next(written) for _ in its])
            for tick, text, its in zip(ticks, fixed, asked, strict=True)
        ]

    def _write(self, writings: Sequence[Writing], ticks: Sequence[Tick]) -> list[Written]:
        if not writings:
            return []
        self._clock.stages_ms.clear()
        written = self._backbone.write(writings, self._clock)
        for tick in ticks:
            for stage, ms in self._clock.stages_ms.items():
                tick.clock.add(stage, ms * 1e-3 / len(ticks))
        return written

    def _writings(self, tick: Tick) -> list[Writing]:
        """A request per row; none where the cap or the deadline come before the first token."""
        options, vocabulary = tick.options, self._vocabulary
        deadline = math.inf if options.deadline_ms is None else options.deadline_ms * 1e-3
        if not options.max_reasoning_tokens or not deadline:
            return []
        ends = (vocabulary.future_start, vocabulary.turn_end)
        return [
            Writing(tick.reading, ends, options.max_reasoning_tokens, Draw.argument(options, sample), deadline)
            for sample in range(tick.rows)
        ]

    def _closed(self, tick: Tick, written: Sequence[Written]) -> Reasoned:
        rows = written or [Written(late=True)] * tick.rows
        texts = tuple(
            closed_text(self._vocabulary, tick.options, sample, each.token_ids, each.late)
            for sample, each in enumerate(rows)
        )
        return Reasoned(texts, max(len(each.token_ids) for each in rows))
