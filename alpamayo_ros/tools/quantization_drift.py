"""How far FP8 layers take the native engine's answers from exact ones, on held-out ticks of the synthetic world.

The same ticks run with exact layers and with FP8 ones: the logits after the prompt, the path with the expert driver's
sentence given and the same noise, and what both drive and say by themselves. With the small checkpoint the scores mean
something; with random weights, such as those of full size, only the distances do. On a CPU the FP8 numbers are
simulated.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alpamayo_ros.core.types import Array, SamplingOptions
from alpamayo_ros.engine.factory import QUANTIZATIONS
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.mini_scores import REASONING_TOKENS, HeldOutTick, held_out_ticks, open_loop_scores
from alpamayo_ros.tools.train_mini import SCORED_EVERY, SCORED_SECONDS, record_held_out

EXACT = "none"
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


def drift(exact: Answers, near: Answers) -> dict[str, Any]:
    """How far two engines' answers are apart."""
    off = (near.logits - exact.logits).norm(dim=-1) / exact.logits.norm(dim=-1)
    apart = np.linalg.norm(near.paths - exact.paths, axis=-1)  # [ticks, 64] m
    means, ends = apart.mean(1), apart[:, -1]
    return {
        "ticks": len(means),
        "logits_relative_error": float(off.mean()),
        "same_likeliest_token": float((near.logits.argmax(-1) == exact.logits.argmax(-1)).float().mean()),
        "path_apart_mean_m": float(means.mean()),
        "path_apart_p95_m": float(np.percentile(means, 95)),
        "path_end_apart_mean_m": float(ends.mean()),
        "path_end_apart_worst_m": float(ends.max()),
        "same_reasoning": _equal(exact.texts, near.texts),
        "exact": _scores(exact),
        "quantized": _scores(near),
    }


def _scores(answers: Answers) -> dict[str, float]:
    return {"same_reasoning_with_draft": _equal(answers.texts, answers.texts_by_draft)} | {
        name: answers.scores[name] for name in ("min_ade_1_m", "min_ade_6_m", "sentence_accuracy")
    }


def _equal(texts: Sequence[tuple[int, ...]], others: Sequence[tuple[int, ...]]) -> float:
    return float(np.mean([text == other for text, other in zip(texts, others, strict=True)]))


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.quantization_drift",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkpoint", default="mini", help="a folder or Hugging Face name (default: %(default)s)")
    parser.add_argument("--quantization", nargs="+", choices=QUANTIZATIONS[1:], default=["fp8"], help="(default: fp8)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)")
    parser.add_argument("--drives", type=int, default=20, help="held-out drives of 20 s (default: %(default)s)")
    parser.add_argument(
        "--every", type=int, default=SCORED_EVERY, help="of their ticks, one in so many (default: %(default)s)"
    )
    cores = max((os.cpu_count() or 2) - 1, 1)
    parser.add_argument("--workers", type=int, default=cores, help="that record drives (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="a file for the figures as JSON")
    options = parser.parse_args(arguments)
    return guarded(lambda: _work(options))


def _work(options: argparse.Namespace) -> int:
    ticks = held_out_ticks(record_held_out(options.drives, SCORED_SECONDS, options.workers), options.every)
    answers = {}
    for quantization in (EXACT, *options.quantization):
        engine = NativeEngine.load(options.checkpoint, device=options.device, quantization=quantization, max_cameras=4)
        try:
            answers[quantization] = answers_of(engine, ticks, quantization)
        finally:
            engine.close()
    figures = {each: drift(answers[EXACT], answers[each]) for each in options.quantization}
    text = json.dumps(figures, indent=2)
    if options.out:
        options.out.write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    run_command(main)
