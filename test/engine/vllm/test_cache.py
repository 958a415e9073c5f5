"""The KV cache: read in place, untouched by others, and given back whatever happens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from inside_vllm import before_each_flow, forget, free_blocks, layers, scheduler, worker
from tiny_checkpoint import drive
from torch.utils._python_dispatch import TorchDispatchMode

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.vllm.backbone import Reading, Writing
from alpamayo_ros.engine.vllm.engine import VllmEngine
from alpamayo_ros.engine.vllm.jobs import FlowJob

pytestmark = pytest.mark.vllm

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)
ROUTE = "Turn left in 30m"


@pytest.mark.parametrize(
    "change",
    [{}, {"num_samples": 3, "reasoning": "independent"}, {"num_samples": 2, "guidance_weight": 1.5}],
    ids=["shared", "independent", "guided"],
)
def test_nothing_is_read_but_the_pinned_tokens(engine: VllmEngine, change: dict[str, Any]) -> None:
    observation = drive(navigation=ROUTE)
    options = replace(SHORT, **change)
    engine.predict(observation, options)  # from here on both find the same in the cache, so they round alike, too
    before = engine.predict(observation, options)

    def spoil(job: FlowJob) -> None:
        for layer in layers(engine):
            size = layer.keys.shape[1]
            read = torch.zeros(layer.keys.shape[:2], dtype=torch.bool)
            for prefix in (*job.prefixes, *job.unguided):
                for number, block in enumerate(prefix.block_ids):
                    read[block, : max(0, min(size, prefix.length - number * size))] = True
            for cache in (layer.keys, layer.values):
                cache[~read.to(cache.device)] = torch.nan

    try:
        with before_each_flow(engine, spoil):
            after = engine.predict(observation, options)
    finally:
        forget(engine)  # what other prompts have in the cache is spoiled
        for layer in layers(engine):  # vLLM itself reads whole blocks and masks afterwards
            for cache in (layer.keys, layer.values):
                cache[cache.isnan()] = 0
    np.testing.assert_array_equal(after.xyz, before.xyz)
    assert np.isfinite(after.xyz).all()


class _LargestResult(TorchDispatchMode):
    """Notes the largest memory that an operation took for its result; views of what is there don't count."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self._known = known
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), more: Any = None) -> Any:
        result = function(*arguments, **(more or {}))
        for each in result if isinstance(result, list | tuple) else [result]:
            if isinstance(each, torch.Tensor) and each.untyped_storage().data_ptr() not in self._known:
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return result


def test_the_flow_copies_no_prefix(engine: VllmEngine) -> None:
    largest: list[int] = []
    prefix_bytes: list[int] = []
    expert = worker(engine)._alpamayo
    run = expert.run

    def watched(job: FlowJob) -> torch.Tensor:
        known = {cache.untyped_storage().data_ptr() for layer in layers(engine) for cache in (layer.keys, layer.values)}
        known |= {weight.untyped_storage().data_ptr() for weight in expert.network.parameters()}
        with _LargestResult(known) as mode:
            actions = run(job)
        largest.append(mode.bytes)
        one = layers(engine)[0].keys
        prefix_bytes.append(2 * job.prefixes[0].length * one.shape[2] * one.shape[3] * one.element_size())
        return actions

    expert.run = watched
    try:
        engine.predict(drive((0, 1, 2, 6)), replace(SHORT, reasoning="given", given_reasoning="word " * 200))
    finally:
        del expert.run
    assert 0 < largest[0] < prefix_bytes[0]  # of a single layer


def test_pinned_blocks_are_untouched_by_later_requests(engine: VllmEngine) -> None:
    tick = engine._open(drive(), SHORT)
    reading = Reading(tick.prompt, tick.pictures, (engine._vocabulary.reasoning_end, engine._vocabulary.future_start))
    pinned = engine._backbone.pin([reading])
    try:
        blocks = list(pinned[0].block_ids)
        before = [(layer.keys[blocks].clone(), layer.values[blocks].clone()) for layer in layers(engine)]
        for seed in range(4):
            engine.predict(drive((0, 1)), replace(SHORT, seed=seed, max_reasoning_tokens=40))
        for layer, (keys, values) in zip(layers(engine), before, strict=True):
            size, length = layer.keys.shape[1], pinned[0].length
            for now, then in ((layer.keys[blocks], keys), (layer.values[blocks], values)):
                assert torch.equal(now.flatten(0, 1)[:length], then.flatten(0, 1)[:length]), size
    finally:
        engine._backbone.release(pinned)


def test_the_last_token_is_in_the_cache_and_the_prompt_is_read_once(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []  # tokens per step
    schedule = scheduler(engine).schedule

    def note(*arguments: Any, **more: Any) -> Any:
        output = schedule(*arguments, **more)
        read.append(output.total_num_scheduled_tokens)
        return output

    monkeypatch.setattr(scheduler(engine), "schedule", note)
    seen: list[FlowJob] = []
    observation = drive((0, 1, 2, 6), navigation=ROUTE)
    options = replace(SHORT, num_samples=3, reasoning="independent", guidance_weight=1.5)
    forget(engine)  # every prompt begins alike
    with before_each_flow(engine, seen.append):
        prediction = engine.predict(observation, options)
    tick = engine._open(observation, options)
    prompt, written = len(tick.prompt), len(prediction.reasoning_token_ids[0])
    assert [prefix.length for prefix in seen[0].prefixes] == [prompt + written] * 3
    assert [prefix.length for prefix in seen[0].unguided] == [prompt + written - len(tick.prompt.route)] * 3
    size = layers(engine)[0].keys.shape[1]

    def full(tokens: int) -> int:  # of them, those in full blocks: only these are found again
        return tokens // size * size

    # first the prompt whole, and for the other samples what follows its full blocks; then token by token
    assert read[0] == prompt + 2 * (prompt - full(prompt - 1))
    cap = options.max_reasoning_tokens
    assert read[1:cap] == [3] * (cap - 1)
    # then what lacks: behind the written tokens; without the route from there on, once, and behind the prompt
    whole, route = prompt + written, tick.prompt.route
    without = whole - len(route)
    again = (
        3 * (whole - full(prompt + cap - 1)) + (without - full(route.start)) + 2 * (without - full(without - written))
    )
    assert sum(read[cap:]) == again


def test_preempted_requests_leak_nothing_and_write_the_same(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    preempted: list[str] = []
    schedule = scheduler(engine)
    preempt = schedule._preempt_request

    def note(request: Any, *arguments: Any, **more: Any) -> Any:
        preempted.append(request.request_id)
        return preempt(request, *arguments, **more)

    monkeypatch.setattr(schedule, "_preempt_request", note)
    before = free_blocks(engine)
    ticks = [engine._open(drive((0, 1, 2, 6), speed=float(speed)), SHORT) for speed in range(8)]
    writings = [Writing(Reading(tick.prompt, tick.pictures), (), 300) for tick in ticks]
    together = engine._backbone.write(writings, clock())
    assert preempted, "the cache was large enough for all; the test needs more requests or a smaller cache"
    assert free_blocks(engine) == before
    for writing, written in zip(writings[:2], together, strict=False):
        assert written.token_ids == engine._backbone.write([writing], clock())[0].token_ids


def test_more_sequences_than_fit_are_refused_before_they_start(engine: VllmEngine) -> None:
    text = "word " * 250
    options = replace(SHORT, reasoning="given", given_reasoning=text)
    tick = engine._open(drive((0, 1, 2, 6)), options)
    text_ids = tuple(engine._vocabulary.encode(text))
    readings = [Reading(tick.prompt, tick.pictures, (number, *text_ids)) for number in range(20)]
    with pytest.raises(EngineError, match=r"20 sequences need \d+: raise engine.kv_cache_memory"):
        engine._backbone.pin(readings)
    engine.predict(drive(), SHORT)


def clock() -> StageClock:
    return StageClock(torch.device("cpu"))
