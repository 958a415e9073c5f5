"""Sizes, devices and layouts: what can't be is refused before or at the start, and says what to change."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import numpy as np
import pytest
import torch
from inside_vllm import forget, worker
from tiny_checkpoint import drive

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.flow.flow_runner import FlowRunner
from alpamayo_ros.engine.flow.shape import FlowShape, shapes_to_capture
from alpamayo_ros.engine.vllm import expert_worker, kv_layout
from alpamayo_ros.engine.vllm.engine import VllmEngine
from alpamayo_ros.engine.vllm.jobs import ExpertPlan
from alpamayo_ros.engine.vllm.startup import GIB, Sizes, check_ranks
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.make_checkpoint import make_checkpoint

SHORT = SamplingOptions(max_reasoning_tokens=4, seed=3)


def test_sizes_follow_the_rig(checkpoint: Path) -> None:
    config = ModelConfig.load(checkpoint)
    one, four = (Sizes.of(config, torch.float32, cameras, 6, 0.0, 1) for cameras in (1, 4))
    assert (one.frames, four.frames) == (4, 16)
    assert four.batch_tokens >= four.frames * 16 + 4 * 16  # a tick's frames and the next one's, 16 tokens each
    assert four.sequence_tokens > four.frames * 16
    assert four.kv_bytes > one.kv_bytes
    # two ticks at least: 4 layers, 2 heads of 32, keys and values, four bytes
    assert four.kv_bytes >= 2 * four.sequence_tokens * 4 * 2 * 32 * 2 * 4
    assert Sizes.of(config, torch.float32, 4, 6, 0.0, 2).kv_bytes == four.kv_bytes // 2
    assert Sizes.of(config, torch.bfloat16, 4, 6, 0.0, 1).kv_bytes == four.kv_bytes // 2
    assert Sizes.of(config, torch.float32, 4, 6, 0.5, 1).kv_bytes == GIB // 2


def test_a_cache_too_small_for_one_sequence_is_refused(checkpoint: Path) -> None:
    config = ModelConfig.load(checkpoint)
    with pytest.raises(EngineError, match=r"kv_cache_memory is 0.001 GiB; with 4 cameras .* tokens and needs 0.00366"):
        Sizes.of(config, torch.float32, 4, 6, 0.001, 1)


def test_ranks_have_to_divide_the_heads(checkpoint: Path) -> None:
    geometry = ModelConfig.load(checkpoint).expert
    check_ranks(geometry, 2)
    with pytest.raises(EngineError, match="tensor_parallel_size is 3; it has to divide the expert's num_key_value_he"):
        check_ranks(geometry, 3)


@pytest.mark.vllm
def test_a_second_engine_in_one_process_is_refused(engine: VllmEngine, checkpoint: Path) -> None:
    with pytest.raises(EngineError, match="has a vllm engine already"):
        VllmEngine.load(str(checkpoint))
    engine.predict(drive(), SHORT)


@pytest.mark.vllm
def test_another_device_than_vllms_is_refused(engine: VllmEngine, checkpoint: Path) -> None:
    other = "cuda" if engine.info.device == "cpu" else "cpu"
    with pytest.raises(EngineError, match=f"device is '{other}', but this vLLM runs on {engine.info.device}"):
        VllmEngine.load(str(checkpoint), device=other)


@pytest.mark.vllm
def test_a_machine_without_a_device_for_this_vllm_is_named(
    engine: VllmEngine, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM for CUDA says it where there is no GPU."""
    platforms = pytest.importorskip("vllm.platforms")
    monkeypatch.setattr(platforms, "current_platform", platforms.interface.UnspecifiedPlatform())
    with pytest.raises(EngineError, match=r"vLLM finds no device that it was built for; check the NVIDIA driver"):
        VllmEngine.load(str(checkpoint))


@pytest.mark.vllm
def test_a_layout_that_the_sentinel_does_not_confirm_is_refused(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = worker(engine)
    shape = list(inside._alpamayo.layers[0].keys.shape)
    engine._backbone._engine.reset_prefix_cache()  # the sentinel is written into a block
    right = inside.alpamayo_layout()
    views, fits = kv_layout.LAYOUTS[right]
    monkeypatch.setitem(kv_layout.LAYOUTS, right, (lambda cache, dim: tuple(reversed(views(cache, dim))), fits))
    with pytest.raises(EngineError, match="isn't laid out as expected: what was written there was not read back"):
        inside.alpamayo_layout()
    monkeypatch.setitem(kv_layout.LAYOUTS, right, (views, lambda *_: False))
    with pytest.raises(EngineError, match=rf"has the shape \[{shape[0]}, .*; known are"):
        inside.alpamayo_layout()
    monkeypatch.undo()
    assert inside.alpamayo_layout() == right


@pytest.mark.vllm
def test_graphs_are_captured_by_warm_up_once_and_not_by_load(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = worker(engine)
    monkeypatch.setattr(inside, "_alpamayo", inside._alpamayo)  # to have it back
    captured: list[FlowShape] = []
    shapes = shapes_to_capture(engine._config.flow.num_inference_steps, engine.info.max_samples)
    with monkeypatch.context() as as_on_cuda:
        as_on_cuda.setattr(FlowRunner, "capture", lambda runner, _memory: captured.append(runner.shape))
        as_on_cuda.setattr(
            expert_worker.ResidentExpert, "capture", lambda expert: expert.flows.capture(expert._shapes, None)
        )
        forget(engine)  # to prove the layout, a sentinel is written into a block
        inside.alpamayo_load(ExpertPlan(engine._config, True, engine.info.max_tokens, shapes))
        assert not captured
        for _ in range(2):
            engine.warm_up()
        assert set(captured) == set(shapes)
        assert len(set(captured)) == len(captured)
        assert captured[0].trajectories == engine.info.max_samples


@pytest.mark.vllm
def test_what_stays_is_out_of_the_garbage_collectors_way(engine: VllmEngine) -> None:
    assert gc.get_freeze_count() > 10_000


@pytest.mark.vllm
def test_an_engine_that_could_not_start_or_was_closed_leaves_the_process_free_for_another(checkpoint: Path) -> None:
    """In a process of its own, as everything that has an engine of its own."""
    said = run(
        f"""
        from alpamayo_ros.core.types import EngineError, SamplingOptions
        try:
            VllmEngine.load({str(checkpoint)!r}, dtype="float32", kv_cache_memory=100000.0)
        except EngineError as error:
            print(error)
        for _ in range(2):
            engine = VllmEngine.load({str(checkpoint)!r}, dtype="float32", max_samples=1, max_cameras=2)
            print(engine.predict(drive(), SamplingOptions(max_reasoning_tokens=2)).finish_reasons)
            engine.close()
            engine.close()
        for call in (
            lambda: engine.predict(drive(), SamplingOptions()),
            lambda: engine.prepare([]),
            lambda: engine.ask(drive(), "?", SamplingOptions()),
        ):
            try:
                call()
            except EngineError as error:
                print(error)
        """
    )
    assert "there is too little memory for vLLM" in said
    assert "lower engine.kv_cache_memory, which is 100000.00 GiB" in said
    assert said.count("('length',)") == 2
    assert said.count("the engine is closed") == 3


@pytest.mark.vllm
def test_in_a_process_of_its_own_which_is_the_default_it_answers_alike(checkpoint: Path, engine: VllmEngine) -> None:
    observation, options = drive(), replace(SHORT, num_samples=2, reasoning="independent")
    other = create_engine("vllm", str(checkpoint), dtype="float32", max_samples=2, max_cameras=2)
    try:
        prediction = other.predict(observation, options)
    finally:
        other.close()
    alone = engine.predict(observation, options)
    assert prediction.reasoning_token_ids == alone.reasoning_token_ids
    np.testing.assert_allclose(prediction.xyz, alone.xyz, atol=2e-3)


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(torch.cuda.device_count() == 1, reason="needs two GPUs, or none")
def test_two_ranks_share_the_model_and_answer_alike(tmp_path: Path, engine: VllmEngine) -> None:
    """From a checkpoint that has a seed in place of weight files; the weights are the same."""
    shapes_only = tmp_path / "shapes"
    make_checkpoint(PRESETS["tiny"], shapes_only, seed=0, shapes_only=True)
    options = replace(SHORT, num_samples=2, guidance_weight=1.5)
    said = run(
        f"""
        import json
        from alpamayo_ros.core.types import SamplingOptions
        engine = VllmEngine.load(
            {str(shapes_only)!r}, dtype="float32", max_samples=2, max_cameras=2, tensor_parallel_size=2
        )
        prediction = engine.predict(drive(navigation="Turn left in 30m"), {options!r})
        print("RESULT", json.dumps([prediction.reasoning_token_ids[0], prediction.xyz[:, -1, :2].tolist()]))
        engine.close()
        """
    )
    alone = engine.predict(drive(navigation="Turn left in 30m"), options)
    tokens, ends = json.loads(said.partition("RESULT ")[2].splitlines()[0])
    assert tokens == list(alone.reasoning_token_ids[0])
    np.testing.assert_allclose(ends, alone.xyz[:, -1, :2], atol=2e-3)


def run(code: str) -> str:
    """What a process of its own prints that runs this."""
    support = str(Path(__file__).parents[2] / "support")
    whole = (
        f"import sys; sys.path.insert(0, {support!r})\n"
        "from tiny_checkpoint import drive\n"
        "from alpamayo_ros.engine.vllm.engine import VllmEngine\n"
        f"if __name__ == '__main__':\n{indent(dedent(code), '    ')}"
    )
    done = subprocess.run(
        [sys.executable, "-c", whole], capture_output=True, text=True, timeout=500, cwd=Path(__file__).parents[3]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
