"""What the transformers engine answers, the native engine answers: tokens equal, numbers up to rounding."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from same_answers import ROUNDING, assert_same
from tiny_checkpoint import drive, picture

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.base import LoadOptions
from alpamayo_ros.engine.flow.shape import shapes_to_capture
from alpamayo_ros.engine.limits import CLOSING_TOKENS
from alpamayo_ros.engine.load_model import load_model
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.engine.native.model import NativeModel
from alpamayo_ros.engine.native.sizes import Sizes
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.stepwise_engine import StepwiseEngine
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.images import preprocess

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)
KV_TOLERANCE = 1e-4
VELOCITY_TOLERANCE = 1e-3
ROUTE = "Turn left in 30m"


def test_it_says_what_it_is(native: NativeEngine, reference: TransformersEngine) -> None:
    info = native.info
    assert (info.engine, info.dtype, info.trained) == ("native", "float32", False)
    assert info.parameters == reference.info.parameters
    assert info.checkpoint_hash == reference.info.checkpoint_hash


@pytest.mark.parametrize("cameras", [(1,), (0, 1, 2, 6)], ids=len)
@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0},
        {"num_samples": 3},
        {"num_samples": 4, "reasoning": "independent"},
        {"num_samples": 2, "guidance_weight": 1.5},
        {"num_samples": 3, "guidance_weight": 0.0, "reasoning": "independent"},
        {"reasoning": "off", "num_samples": 2},
        {"reasoning": "given", "given_reasoning": "Keep the lane.", "guidance_weight": 2.0},
        {"top_p": 0.5, "temperature": 1.3, "noise_temperature": 0.6, "flow_steps": 4},
        {"max_reasoning_tokens": 40},
    ],
    ids=lambda change: "-".join(map(str, change.values())),
)
def test_predictions_are_the_same(
    native: NativeEngine, reference: TransformersEngine, cameras: tuple[int, ...], change: dict[str, object]
) -> None:
    options = replace(SHORT, **change)
    navigation = ROUTE if options.guidance_weight is not None else None
    observation = drive(cameras, navigation=navigation)
    theirs = reference.predict(observation, options)
    assert_same(native.predict(observation, options), theirs)
    drafted = replace(options, draft_token_ids=theirs.reasoning_token_ids[0])
    assert_same(native.predict(observation, drafted), theirs)


@pytest.mark.parametrize(("tokens", "last"), [(6, [(2, 64)]), (40, [(2, 96)]), (90, [(1, 3), (1, 200)])], ids=str)
def test_guidance_reads_the_end_of_the_reasoning_and_the_prompt_without_its_route_in_one_pass(
    native: NativeEngine,
    reference: TransformersEngine,
    monkeypatch: pytest.MonkeyPatch,
    tokens: int,
    last: list[tuple[int, int]],
) -> None:
    """Where both are longer than any captured pass, each is read alone."""
    options = replace(SHORT, max_reasoning_tokens=tokens, guidance_weight=1.5, num_samples=2)
    observation = drive((1,), navigation=ROUTE)
    passes: list[tuple[int, int]] = []
    extend = native._model.backbone.extend

    def noted(batch: Any, cache: Any, token_ids: torch.Tensor, logits: int = 1) -> torch.Tensor:
        passes.append(tuple(token_ids.shape))
        return extend(batch, cache, token_ids, logits)

    monkeypatch.setattr(native._model.backbone, "extend", noted)
    ours = native.predict(observation, options)
    assert len(passes) == len(last)
    assert all(
        rows == most_rows and count <= most for (rows, count), (most_rows, most) in zip(passes, last, strict=True)
    )
    assert_same(ours, reference.predict(observation, options))


def test_answers_are_the_same(native: NativeEngine, reference: TransformersEngine) -> None:
    observation, options = drive(), replace(SHORT, max_reasoning_tokens=12)
    answer = native.ask(observation, "Is the road free?", options)
    assert answer == reference.ask(observation, "Is the road free?", options)
    assert answer


@torch.inference_mode()
def inside(engine: StepwiseEngine, options: SamplingOptions, observation: Any) -> tuple[list[Any], torch.Tensor]:
    """Keys and values of every layer after a tick's reasoning, and velocities there."""
    clock = StageClock(torch.device("cpu"))
    ticks = [engine._tick(observation, options, clock)]
    reasoned = engine._reason(ticks, engine._read(ticks, clock), clock)
    batch, model = reasoned.batch, engine._model
    field = model.velocity(reasoned.cache.prefix(reasoned.ends, batch.padding, batch.rope_deltas), 1)
    rows = len(reasoned.texts)
    states = torch.randn(3, rows, 64, 2, generator=torch.Generator().manual_seed(1))
    velocities = torch.stack([field(state, torch.full((rows, 1, 1), 0.3)) for state in states])
    layers = range(model.config.backbone.text.num_hidden_layers)
    return [tuple(part.clone() for part in reasoned.cache.written(index)) for index in layers], velocities


@pytest.mark.parametrize("reasoning", ["shared", "independent"])
def test_keys_values_and_velocities_are_the_same(
    native: NativeEngine, reference: TransformersEngine, reasoning: str
) -> None:
    options = replace(SHORT, num_samples=3, reasoning=reasoning)
    observation = drive()
    ours, our_velocities = inside(native, options, observation)
    theirs, their_velocities = inside(reference, options, observation)
    assert len(ours) == len(theirs)
    for mine, its in zip(ours, theirs, strict=True):
        for part, other in zip(mine, its, strict=True):
            assert part.shape == other.shape
            assert (part - other).abs().max() < KV_TOLERANCE
    assert (our_velocities - their_velocities).abs().max() < VELOCITY_TOLERANCE


@torch.inference_mode()
def test_image_features_are_the_same_alone_and_in_company(native: NativeEngine, reference: TransformersEngine) -> None:
    sizes = [(96, 160), (160, 96), (96, 160), (128, 128), (96, 160), (224, 96)]
    config = native._model.config.images
    patches = [preprocess([picture(seed, *size)], config) for seed, size in enumerate(sizes)]
    ours = native._model.backbone.encode_each(patches)
    theirs = reference._model.backbone.encode_each(patches)
    for mine, its in zip(ours, theirs, strict=True):
        assert (mine.rows, mine.columns) == (its.rows, its.columns)
        assert (mine.embeddings - its.embeddings).abs().max() < KV_TOLERANCE
        assert (mine.deepstack - its.deepstack).abs().max() < KV_TOLERANCE
    alone = native._model.backbone.encode_each(patches[3:4])[0]
    assert torch.equal(alone.embeddings, ours[3].embeddings)


def test_rows_that_a_captured_step_has_too_many_of_change_nothing(native: NativeEngine) -> None:
    """Three rows run in a step of four; block 0 takes what the fourth writes."""
    options = replace(SHORT, num_samples=3, reasoning="independent")
    observation = drive()
    three = native.predict(observation, options)
    four = native.predict(observation, replace(options, num_samples=4))
    assert three.reasoning_token_ids == four.reasoning_token_ids[:3]
    np.testing.assert_allclose(three.xyz, four.xyz[:3], atol=ROUNDING)


def test_what_an_engine_has_held_is_free_when_it_is_closed(checkpoint: Path) -> None:
    """At once: nobody knows when the garbage collector comes by, and a device's memory isn't its reason to."""
    engine = NativeEngine.load(str(checkpoint), device="cpu", max_samples=2, max_cameras=1)
    engine.predict(drive((1,)), replace(SHORT, flow_steps=3))
    backbone = engine._native.backbone
    held = [weakref.ref(each) for each in (backbone, backbone._text, engine._native.pool, engine._native.network)]
    del backbone
    gc.disable()
    try:
        engine.close()
        assert [each() for each in held] == [None] * len(held)
    finally:
        gc.enable()


@torch.inference_mode()
def test_what_is_rehearsed_side_by_side_changes_no_answer(native: NativeEngine) -> None:
    """As `capture` does on CUDA before it records."""
    observation, options = drive(), replace(SHORT, num_samples=3, reasoning="independent")
    before = native.predict(observation, options)
    model, shapes = native._model, shapes_to_capture(2, 4)
    done: list[None] = []
    with ThreadPoolExecutor() as threads:
        for work, arguments in ((model.flows.rehearse, (shapes,)), (model.backbone.rehearse, ())):
            threads.submit(torch.inference_mode(work), *arguments, lambda: done.append(None))
    assert len(done) == len(shapes) + model.backbone.steps
    assert_same(native.predict(observation, options), before, 0)


def test_a_cache_that_is_too_small_is_named(native: NativeEngine) -> None:
    options = replace(SHORT, num_samples=4, reasoning="independent", max_reasoning_tokens=900)
    pool = native._model.pool
    blocks, pool.blocks = pool.blocks, 90
    try:
        with pytest.raises(EngineError, match=r"the KV cache has \d+ blocks of 16 tokens left, and the tick needs"):
            native.predict(drive(), options)
    finally:
        pool.blocks = blocks
    assert_same(native.predict(drive(), SHORT), native.predict(drive(), SHORT), 0)


@pytest.fixture(scope="module")
def short(checkpoint: Path) -> NativeEngine:
    """One whose longest sequence is a prompt of one camera and five tokens of reasoning."""
    model = load_model(str(checkpoint), LoadOptions(device="cpu"))
    sizes = replace(Sizes.of(model.config, model.dtype, 1, 4, 0), sequence_tokens=192)
    return NativeEngine(NativeModel.take(model, sizes), "short", 4, 1)


@pytest.mark.parametrize(("drafts", "accepted"), [([0, 1, 2, 3, 4], 5), ([0, 1, 0, 3, 4, 5, 6], 2)])
def test_drafts_change_nothing_where_the_longest_sequence_ends(
    short: NativeEngine, reference: TransformersEngine, drafts: list[int], accepted: int
) -> None:
    """With drafts of all of its length, and where the tokens that close it are fewer than a captured step has."""
    options, observation = replace(SHORT, max_reasoning_tokens=5), drive((1,))
    prompt = short._tick(observation, options, StageClock(torch.device("cpu"))).prompt
    assert len(prompt) + options.max_reasoning_tokens + CLOSING_TOKENS == short.info.max_tokens
    theirs = reference.predict(observation, options)
    text = theirs.reasoning_token_ids[0]
    drafted = replace(options, draft_token_ids=tuple(text[place] for place in drafts))
    ours = short.predict(observation, drafted)
    assert ours.drafts_accepted == accepted
    assert_same(ours, theirs)


def test_a_given_reasoning_that_is_too_long_is_named(short: NativeEngine) -> None:
    options = replace(SHORT, reasoning="given", given_reasoning="Keep the lane.", max_reasoning_tokens=0)
    short.predict(drive((1,)), options)
    with pytest.raises(EngineError, match=r"given_reasoning has \d\d+ tokens; with a prompt of 185 tokens"):
        short.predict(drive((1,)), replace(options, given_reasoning="Keep the lane. " * 20))
