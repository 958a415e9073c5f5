"""Tokens written by the tiny model come as often as Hugging Face's processors would have them drawn.

Draws of one step are counted over many samples and compared with the sum of their probabilities, by a chi-square test
whose bound is five standard deviations above its mean. The noise is keyed, so the outcome is the same on every run.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_checkpoint import drive
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.reasoning import Reasoner, Text, write
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.backbone import batch_prompts
from alpamayo_ros.model.vocabulary import Vocabulary

SAMPLES, SEEDS, STEPS = 400, 5, 3
FEWEST = 5  # expected draws of a token that is counted alone


class Recording:
    """Lets a reasoner choose, and keeps what it drew from: of every step the logits [rows, V] and a token per row."""

    def __init__(self, reasoner: Reasoner, vocabulary: Vocabulary) -> None:
        self.steps: list[tuple[Tensor, Tensor]] = []
        self._reasoner = reasoner
        self._vocabulary = vocabulary

    def __call__(self, logits: Tensor) -> Sequence[int] | None:
        texts = self._reasoner.texts
        free = [row for row, text in enumerate(texts) if not text.finish_reason]
        before = logits[free]
        tokens = self._reasoner(logits)
        if len(self.steps) < STEPS:
            # in the place of an end of turn the reasoning is closed
            drawn = [
                self._vocabulary.turn_end if texts[row].finish_reason == "forced" else texts[row].token_ids[-1]
                for row in free
            ]
            self.steps.append((before, torch.tensor(drawn)))
        return tokens


def written(engine: TransformersEngine, options: SamplingOptions) -> list[tuple[Tensor, Tensor]]:
    """What independent samples drew from, and what, step by step, as the engine writes them."""
    model = engine._model
    observation = drive((1,))
    features = engine._tick(observation, SamplingOptions(), StageClock(model.device)).features
    prompt = engine._prompts.driving(observation, [len(each.embeddings) for each in features])
    batch = batch_prompts([prompt], [features], model.vocabulary.pad, model.device)
    cache = model.new_cache(len(prompt))
    logits = model.backbone.read(batch, cache).expand(SAMPLES, -1, -1).clone()
    branch = cache.branch([0] * SAMPLES, len(prompt), len(prompt) + STEPS + 2)
    rows = batch.take([0] * SAMPLES)
    texts = [Text(sample, seed=options.seed) for sample in range(SAMPLES)]
    recording = Recording(Reasoner(model.vocabulary, options, texts), model.vocabulary)
    write(model.backbone, rows, branch, logits, recording)
    return recording.steps


def transformers_probabilities(logits: Tensor, vocabulary: Vocabulary, options: SamplingOptions) -> Tensor:
    """What `generate` would draw from: its processors, then its warpers in its order."""
    processors = LogitsProcessorList([SuppressTokensLogitsProcessor(list(vocabulary.trajectory_ids), logits.device)])
    processors.append(TemperatureLogitsWarper(options.temperature))
    if options.top_p < 1:
        processors.append(TopPLogitsWarper(options.top_p))
    return processors(torch.zeros(len(logits), 1, dtype=torch.int64), logits).softmax(-1).double()


def chi_square(counts: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """The statistic, and the bound for it; rare tokens are counted together."""
    rare = expected < FEWEST
    assert rare.sum() < len(expected)
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], max(expected[rare].sum(), 1e-9))
    freedom = len(expected) - 1
    return ((counts - expected) ** 2 / expected).sum(), freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize(("temperature", "top_p"), [(0.6, 0.98), (1.0, 0.5), (0.3, 1.0)])
@torch.inference_mode()
def test_every_step_is_drawn_as_transformers_would_draw_it(
    engine: TransformersEngine, temperature: float, top_p: float
) -> None:
    vocabulary = engine._model.vocabulary
    counts = np.zeros((STEPS, vocabulary.size))
    expected = np.zeros((STEPS, vocabulary.size))
    options = SamplingOptions(temperature=temperature, top_p=top_p, max_reasoning_tokens=STEPS)
    for seed in range(SEEDS):
        for step, (logits, drawn) in enumerate(written(engine, replace(options, seed=seed))):
            probabilities = transformers_probabilities(logits, vocabulary, options)
            assert (probabilities.gather(1, drawn[:, None]) > 0).all()
            counts[step] += np.bincount(drawn, minlength=vocabulary.size)
            expected[step] += probabilities.sum(0).numpy()
    assert counts[0].sum() == SAMPLES * SEEDS
    for step in range(STEPS):
        statistic, bound = chi_square(counts[step], expected[step])
        assert statistic < bound, f"step {step}: {statistic:.0f} is not below {bound:.0f}"
