"""Ticks on their way through an engine: which go side by side, what they have written, what comes out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from alpamayo_ros.core.types import Observation, SamplingOptions, Timings
from alpamayo_ros.engine.reasoning import Text
from alpamayo_ros.model.backbone import ImageFeatures, PromptBatch
from alpamayo_ros.model.prompt import Prompt

MOST_TICKS = 8  # in one batch: each takes the memory of its prompt's keys and values


@dataclass(frozen=True, eq=False)
class Tick:
    """An observation, ready for the language model."""

    observation: Observation
    options: SamplingOptions
    features: list[ImageFeatures]  # of all frames, in the order of the prompt
    frames_encoded: int  # how many of them were encoded for this tick
    prompt: Prompt


@dataclass(frozen=True, eq=False)
class Reasoned:
    """Prompts with the reasoning after them, in the cache."""

    batch: PromptBatch  # a row per text
    cache: Any  # the model's own
    texts: Sequence[Text]  # of the first tick, then of the next; as many of each
    ends: Sequence[int]  # per text, the column after its last token
    drafts_accepted: int = 0
    unread: Tensor | None = None  # [1, n]: the last tokens of the one text, to be read with what guidance reads


def rows_of(options: SamplingOptions) -> int:
    """How many texts a tick has: one for all samples, or one for each."""
    return options.num_samples if options.reasoning == "independent" else 1


def is_guided(options: SamplingOptions) -> bool:
    """Whether the prompt without its route is read as well."""
    return options.guidance_weight not in (None, 1)


def group(options: Sequence[SamplingOptions], most_rows: int, most_ticks: int = MOST_TICKS) -> list[list[int]]:
    """The places of ticks that may be predicted in one batch.

    Their options differ by nothing but the seed, the given text and the drafts. Guided ticks stay alone, since their
    prompts are read once more from the route on, which begins somewhere else in each.

    Args:
        options: Of every tick.
        most_rows: How many texts a batch may have.
        most_ticks: How many ticks.
    """
    alike: dict[SamplingOptions, list[int]] = defaultdict(list)
    groups = []
    for place, its in enumerate(options):
        if not is_guided(its):
            alike[replace(its, seed=0, given_reasoning="", draft_token_ids=(), guidance_weight=None)].append(place)
        else:
            groups.append([place])
    for its, places in alike.items():
        size = max(1, min(most_ticks, most_rows // rows_of(its)))
        groups += [places[start : start + size] for start in range(0, len(places), size)]
    return groups


def timings_of(tick: Tick, texts: Sequence[Text], drafts_accepted: int, stages_ms: Mapping[str, float]) -> Timings:
    """What a tick took: its rows, how many drafts of its row stood, and milliseconds by stage."""
    written = max(len(text.token_ids) for text in texts) - drafts_accepted
    return Timings(
        stages_ms=stages_ms,
        frames_encoded=tick.frames_encoded,
        frames_reused=len(tick.features) - tick.frames_encoded,
        reasoning_tokens=written if tick.options.reasoning in ("shared", "independent") else 0,
    )
