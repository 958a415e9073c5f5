"""How far two native engines' answers to the same held-out ticks of the synthetic world are apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alpamayo_ros.core.types import Array, SamplingOptions
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.mini_scores import REASONING_TOKENS, HeldOutTick, open_loop_scores

OPTIONS = SamplingOptions(max_reasoning_tokens=REASONING_TOKENS)


@dataclass(frozen=True, eq=False)
class Answers:
    """What an engine gave for the ticks, in their order."""

    logits: torch.Tensor  # [ticks, V] after the prompt
    paths: Array  # [ticks, 64, 3] m with the expert's sentence given
    texts: tuple[tuple[int, ...], ...]  # tokens that were written one by one
    texts_by_draft: tuple[tuple[int, ...], ...]  # the same with those as draft
    scores: dict[str, Any]


def answers_of(engine: NativeEngine, ticks: Sequence[HeldOutTick], name: str) -> Answers:
    """Run the ticks; each has its own noise, the same for every engine."""
    logits, paths, texts, by_draft = [], [], [], []
    for number, tick in enumerate(progress(ticks, desc=name, unit=" ticks")):
        options = replace(OPTIONS, seed=number)
        logits.append(engine.first_logits(tick.observation, options))
        given = replace(options, reasoning="given", given_reasoning=tick.sentence)
        paths.append(engine.predict(tick.observation, given).xyz[0])
        texts.append(engine.predict(tick.observation, options).reasoning_token_ids[0])
        drafted = engine.predict(tick.observation, replace(options, draft_token_ids=texts[-1]))
        by_draft.append(drafted.reasoning_token_ids[0])
    return Answers(torch.stack(logits), np.stack(paths), tuple(texts), tuple(by_draft), open_loop_scores(engine, ticks))


def answers_by(checkpoint: str, ticks: Sequence[HeldOutTick], name: str, **options: Any) -> Answers:
    """Of an engine of its own, which is closed afterwards; `options` as `NativeEngine.load` has them."""
    engine = NativeEngine.load(checkpoint, max_cameras=4, **options)
    try:
        return answers_of(engine, ticks, name)
    finally:
        engine.close()


def tell(figures: Mapping[str, Any], out: Path | None) -> None:
    """Print figures as JSON, and write them to a file where one is asked for."""
    text = json.dumps(figures, indent=2)
    if out:
        out.write_text(text + "\n")
    print(text)


def drift(answers: Answers, others: Answers) -> dict[str, Any]:
    """How far the others are from the first ones."""
    off = (others.logits - answers.logits).norm(dim=-1) / answers.logits.norm(dim=-1)
    apart = np.linalg.norm(others.paths - answers.paths, axis=-1)  # [ticks, 64] m
    means, ends = apart.mean(1), apart[:, -1]
    return {
        "ticks": len(means),
        "logits_relative_error": float(off.mean()),
        "same_likeliest_token": float((others.logits.argmax(-1) == answers.logits.argmax(-1)).float().mean()),
        "path_apart_mean_m": float(means.mean()),
        "path_apart_p95_m": float(np.percentile(means, 95)),
        "path_end_apart_mean_m": float(ends.mean()),
        "path_end_apart_worst_m": float(ends.max()),
        "same_reasoning": _equal(answers.texts, others.texts),
    }


def scores_of(answers: Answers) -> dict[str, float]:
    """How good the answers are by themselves, and whether a draft leaves the words as they are."""
    return {"same_reasoning_with_draft": _equal(answers.texts, answers.texts_by_draft)} | {
        name: answers.scores[name] for name in ("min_ade_1_m", "min_ade_6_m", "sentence_accuracy")
    }


def _equal(texts: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> float:
    return float(np.mean([text == other for text, other in zip(texts, others, strict=True)]))
