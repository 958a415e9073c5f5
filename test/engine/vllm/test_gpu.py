"""What a CPU can't show: kernels on vLLM's paged cache, captured graphs, bfloat16, and memory that stays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inside_vllm import layers, worker
from tiny_checkpoint import drive
from torch._dynamo.utils import counters

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.flow.flow_runner import FlowRunner
from alpamayo_ros.engine.flow.paged_attention import attend, attention_for
from alpamayo_ros.engine.flow.paged_cache import KVPrefix, LayerCache, PagedPrefixes
from alpamayo_ros.engine.flow.shape import FlowShape
from alpamayo_ros.engine.vllm.engine import VllmEngine
from alpamayo_ros.model.alpamayo import ActionNetwork, action_velocity
from alpamayo_ros.model.flow_matching import follow, time_grid
from alpamayo_ros.model.kv_cache import Prefix

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SHORT = SamplingOptions(max_reasoning_tokens=4, seed=3)
LENGTHS = (1600, 3098, 3120)
KERNEL_TOLERANCE = 5e-3  # relative, of bfloat16 against float32


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[VllmEngine]:
    engine = VllmEngine.load(str(checkpoint), dtype="bfloat16", max_samples=16, max_cameras=4, kv_cache_memory=0.25)
    assert not worker(engine)._alpamayo.flows._captured
    engine.warm_up()
    yield engine
    engine.close()


def compiled() -> dict[str, dict[str, int]]:
    return {kind: dict(counts) for kind, counts in counters.items()}


def test_after_warm_up_nothing_is_captured_or_compiled_and_memory_stays(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first test of this file, so that no other has done it meanwhile."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a graph is captured after warm_up")

    observation = drive((0, 1, 2, 6), navigation="Turn left in 30m")
    engine.prepare([frame for four in observation.frames.values() for frame in four])  # a size of image of its own
    monkeypatch.setattr(torch.cuda.graph, "__enter__", refuse)
    at_first = compiled()
    for samples in (1, 5, 6, 9, 16):
        for change in ({}, {"reasoning": "independent"}, {"guidance_weight": 1.5}, {"reasoning": "off"}):
            engine.predict(observation, replace(SHORT, num_samples=samples, **change))
    engine.predict(drive(), SHORT)
    engine.predict_batch([observation, drive()], [SHORT, SHORT])
    engine.ask(observation, "Is the road free?", SHORT)

    def tick(number: int) -> None:
        change = [
            {"num_samples": 6},
            {"num_samples": 3, "reasoning": "independent"},
            {"num_samples": 6, "guidance_weight": 1.5},
        ][number % 3]
        engine.predict(drive((0, 1, 2, 6), navigation="Turn left in 30m"), replace(SHORT, **change))

    def memory() -> tuple[int, int]:
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    settled = {}
    for number in range(12):  # until vLLM has as many encoded frames as it keeps
        tick(number)
        settled[number % 3] = memory()
    for number in range(30):
        tick(number)
        assert memory() == settled[number % 3]
    assert compiled() == at_first


@pytest.fixture(scope="module")
def noise_in_the_cache(engine: VllmEngine) -> list[LayerCache]:
    """The cache, filled at random: as good as any prefix."""
    engine._backbone._engine.reset_prefix_cache()
    generator = torch.Generator(device="cuda").manual_seed(0)
    with torch.inference_mode():
        for layer in layers(engine):
            for cache in (layer.keys, layer.values):
                cache.copy_(torch.randn(cache.shape, generator=generator, device="cuda"))
    return layers(engine)


def prefix(length: int, size: int, first_block: int = 1) -> KVPrefix:
    blocks = tuple(range(first_block, first_block + math.ceil(length / size)))
    return KVPrefix(blocks, length, length - 100)


def runner(engine: VllmEngine, shape: FlowShape) -> FlowRunner:
    """With room for longer prefixes than the tiny engine's own."""
    flows = worker(engine)._alpamayo.flows
    blocks = math.ceil(max(LENGTHS) / flows.layers[0].keys.shape[1])
    return FlowRunner(flows._flow_network, flows.layers, shape, engine._config.action_space.n_waypoints, blocks)


def relative_error(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left.float() - right.float()).norm() / right.float().norm())


@pytest.mark.parametrize(("rows", "samples"), [(1, 1), (1, 16), (6, 1)])
def test_the_kernel_agrees_with_plain_torch(
    noise_in_the_cache: list[LayerCache], engine: VllmEngine, rows: int, samples: int
) -> None:
    geometry = worker(engine)._alpamayo.network.expert.geometry
    heads, dim, size = geometry.num_attention_heads, geometry.head_dim, noise_in_the_cache[0].keys.shape[1]
    prefixes = PagedPrefixes.empty(rows, math.ceil(3200 / size), torch.device("cuda"))
    for row in range(rows):
        each = prefix(3036 - 7 * row, size, 1 + row)
        prefixes.block_table[row, : len(each.block_ids)] = torch.tensor(each.block_ids)
        prefixes.lengths[row] = each.length
    make = lambda count: torch.randn(rows, samples, 64, count, dim, device="cuda", dtype=torch.bfloat16)  # noqa: E731
    inputs = make(heads), make(geometry.num_key_value_heads), make(geometry.num_key_value_heads)
    kernel = attention_for(torch.device("cuda"))
    for layer in noise_in_the_cache:
        ours, theirs = kernel(*inputs, layer, prefixes), attend(*inputs, layer, prefixes)
        assert relative_error(ours, theirs) < KERNEL_TOLERANCE


@pytest.mark.parametrize("guided", [False, True])
@pytest.mark.parametrize(("rows", "samples"), [(1, 1), (1, 6), (6, 1)])
def test_one_graph_serves_every_length(
    noise_in_the_cache: list[LayerCache], engine: VllmEngine, rows: int, samples: int, guided: bool
) -> None:
    size = noise_in_the_cache[0].keys.shape[1]
    shape = FlowShape(rows, samples, guided, 10)
    captured, eager = runner(engine, shape), runner(engine, shape)
    with torch.inference_mode():
        graph: Any = None
        for length in LENGTHS:
            each = [prefix(length - 16 * row, size, 1 + row) for row in range(rows)] * (1 + guided)
            noise = torch.randn(rows * samples, 64, 2)
            if graph is None:
                captured._fill(each, noise, 1.5)
                captured.capture(torch.cuda.graph_pool_handle())
                graph = captured._replayed._graph
            replayed = captured.run(each, noise, 1.5).clone()
            torch.testing.assert_close(replayed, eager.run(each, noise, 1.5), atol=0.05, rtol=0.02)
            assert captured._replayed._graph is graph
            assert replayed.isfinite().all()


def test_bfloat16_is_as_near_to_float32_as_the_transformers_engines(
    noise_in_the_cache: list[LayerCache], engine: VllmEngine
) -> None:
    """Velocities on the same KV: by the kernels on the blocks, by scaled_dot_product_attention, and in float32."""
    expert = worker(engine)._alpamayo
    size = noise_in_the_cache[0].keys.shape[1]
    config = engine._config
    each = prefix(3086, size)
    exact = ActionNetwork(config, True).eval()
    weights = {name: tensor.float() for name, tensor in expert.network.state_dict().items()}
    assert not exact.load_state_dict(weights, strict=False).missing_keys
    exact = exact.cuda()
    errors = {"vllm": 0.0, "transformers": 0.0}
    with torch.inference_mode():
        paged = runner(engine, FlowShape(1, 1, False, 10)).velocity([each])
        dense = action_velocity(expert.network, expert.network.expert.read(_dense(each, torch.bfloat16, engine), 1, 64))
        truth = action_velocity(exact, exact.expert.read(_dense(each, torch.float32, engine), 1, 64))
        states = follow(truth, torch.randn(1, 64, 2, device="cuda"), time_grid(10, "cuda")).states
        for state, time in zip(states[:-1], time_grid(10, "cuda")[:-1], strict=True):
            at = time.expand(1, 1, 1)
            expected = truth(state, at)
            errors["vllm"] += float((paged(state, at).float() - expected).square().sum())
            errors["transformers"] += float((dense(state, at).float() - expected).square().sum())
    assert math.sqrt(errors["vllm"]) <= 1.5 * math.sqrt(errors["transformers"]), errors


@pytest.mark.parametrize("samples", [1, 3, 6, 7, 16])
def test_any_number_of_samples_runs_in_a_captured_graph(engine: VllmEngine, samples: int) -> None:
    expert = worker(engine)._alpamayo
    for rows, per_row in ((1, samples), (samples, 1)):
        for guided in (False, True):
            assert expert.flows._smallest_captured(FlowShape(rows, per_row, guided, 10)) is not None
    observation = drive()
    many = engine.predict(observation, replace(SHORT, num_samples=samples, reasoning="independent"))
    one = engine.predict(observation, SHORT)
    assert many.reasoning_token_ids[0] == one.reasoning_token_ids[0]
    np.testing.assert_allclose(many.xyz[0], one.xyz[0], atol=1.0)


def _dense(paged: KVPrefix, dtype: torch.dtype, engine: VllmEngine) -> Prefix:
    """The same prefix in one piece, with room for the action tokens."""
    blocks = list(paged.block_ids)

    def copy(cache: torch.Tensor) -> torch.Tensor:
        tokens = cache[blocks].flatten(0, 1)[: paged.length].transpose(0, 1)[None].to(dtype)
        return torch.cat((tokens, tokens.new_zeros(1, tokens.shape[1], 64, tokens.shape[3])), 2)

    return Prefix(
        keys=tuple(copy(layer.keys) for layer in layers(engine)),
        values=tuple(copy(layer.values) for layer in layers(engine)),
        length=paged.length,
        blocked=None,
        first_position=torch.tensor([paged.first_position], device="cuda"),
    )
