"""Looks into a vLLM engine that runs in this process: its worker, its scheduler and its cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.flow.paged_cache import KVPrefix, LayerCache
from alpamayo_ros.engine.vllm.engine import VllmEngine
from alpamayo_ros.engine.vllm.jobs import FlowJob


def worker(engine: VllmEngine) -> Any:
    """vLLM's worker, with ExpertWorker mixed in."""
    return engine._backbone.inspect(lambda worker: worker)


def layers(engine: VllmEngine) -> list[LayerCache]:
    return worker(engine)._alpamayo.layers


def model(engine: VllmEngine) -> Any:
    return worker(engine).model_runner.get_model()


def scheduler(engine: VllmEngine) -> Any:
    return engine._backbone._engine.engine_core.engine_core.scheduler


def free_blocks(engine: VllmEngine) -> int:
    """After the steps that asynchronous scheduling is behind with."""
    for _ in range(2):
        engine._backbone._engine.step()
    return scheduler(engine).kv_cache_manager.block_pool.get_num_free_blocks()


def forget(engine: VllmEngine) -> None:
    """Nothing in the cache is found again."""
    free_blocks(engine)
    assert engine._backbone._engine.reset_prefix_cache()


def gather(layer: LayerCache, prefix: KVPrefix) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of the keys and values of a prefix, [tokens, kv_heads, head_dim]."""
    blocks = list(prefix.block_ids)
    keys, values = (cache[blocks].flatten(0, 1)[: prefix.length] for cache in (layer.keys, layer.values))
    return keys, values


@contextmanager
def jobs(engine: VllmEngine) -> Iterator[list[Any]]:
    """The flows that the worker is asked for while this is open; each keeps its prefixes' copies in `kept`."""
    seen: list[Any] = []
    expert = worker(engine)._alpamayo
    run = expert.run

    def note(job: Any) -> torch.Tensor:
        seen.append(job)
        return run(job)

    expert.run = note
    try:
        yield seen
    finally:
        del expert.run


@contextmanager
def before_each_flow(engine: VllmEngine, action: Callable[[FlowJob], None]) -> Iterator[None]:
    """Do something with a tick's flow before it runs."""
    expert = worker(engine)._alpamayo
    run = expert.run

    def wrapped(job: FlowJob) -> torch.Tensor:
        action(job)
        return run(job)

    expert.run = wrapped
    try:
        yield
    finally:
        del expert.run


@contextmanager
def broken_model(engine: VllmEngine, name: str, works: int = 0) -> Iterator[None]:
    """A model whose method (forward, or compute_logits after it) fails, after it has worked a number of times."""
    broken = model(engine)
    method = getattr(broken, name)
    calls = itertools.count()

    def fail(*arguments: Any, **more: Any) -> Any:
        if next(calls) < works:
            return method(*arguments, **more)
        raise EngineError("broken on purpose")

    setattr(broken, name, fail)
    try:
        yield
    finally:
        delattr(broken, name)


@contextmanager
def scripted(engine: VllmEngine, tokens: Sequence[int]) -> Iterator[None]:
    """Let the model favour these tokens, one after the other, whatever it reads. For one request at a time."""
    script = iter(tokens)
    language_model = model(engine).language_model
    compute = type(language_model).compute_logits

    def favour(hidden_states: torch.Tensor) -> torch.Tensor:
        logits = compute(language_model, hidden_states)
        token = next(script, None)
        if token is not None:
            logits[-1, token] = 1000
        return logits

    language_model.compute_logits = favour
    try:
        yield
    finally:
        del language_model.compute_logits
