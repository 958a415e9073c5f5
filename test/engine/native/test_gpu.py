"""What a CPU can't show: kernels and captured graphs answer as the reference does, and memory stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_checkpoint import drive, picture, raw_frame

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.engine.transformers_engine import TransformersEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)
ROUTE = "Turn left in 30m"
WAYS = [
    {},
    {"num_samples": 3},
    {"num_samples": 4, "reasoning": "independent"},
    {"num_samples": 2, "guidance_weight": 1.5},
    {"num_samples": 3, "guidance_weight": 0.0, "reasoning": "independent"},
    {"reasoning": "off"},
]


@pytest.fixture(scope="module", autouse=True)
def float32_is_float32() -> None:
    torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Iterator[NativeEngine]:
    engine = NativeEngine.load(str(checkpoint), device="cuda", dtype="float32", max_samples=4, max_cameras=2)
    engine.warm_up()
    yield engine
    engine.close()


@pytest.mark.parametrize("change", WAYS, ids=lambda change: "-".join(map(str, change.values())) or "one")
def test_graphs_and_kernels_answer_as_the_reference(
    engine: NativeEngine, checkpoint: Path, change: dict[str, object]
) -> None:
    reference = TransformersEngine.load(str(checkpoint), device="cuda", dtype="float32", max_samples=4, max_cameras=2)
    options = replace(SHORT, **change)
    observation = drive(navigation=ROUTE if options.guidance_weight is not None else None)
    theirs = reference.predict(observation, options)
    for its in (options, replace(options, draft_token_ids=theirs.reasoning_token_ids[0])):
        ours = engine.predict(observation, its)
        assert ours.reasoning_token_ids == theirs.reasoning_token_ids
        np.testing.assert_allclose(ours.xyz, theirs.xyz, atol=2e-3)
    reference.close()


def test_frames_that_are_prepared_while_a_tick_runs_change_no_answer(engine: NativeEngine) -> None:
    scenes = [partial(drive, speed=speed) for speed in (3.0, 9.0)]  # each call has serials of its own
    expected = [engine.predict(scene(), SHORT) for scene in scenes]
    ticks = [scene() for _ in range(20) for scene in scenes]
    with ThreadPoolExecutor() as threads:
        for number, tick in enumerate(ticks):
            coming = [frame for later in ticks[number : number + 2] for four in later.frames.values() for frame in four]
            if number % 8 == 3:  # a size that is new: a graph is captured while the tick runs
                coming += [raw_frame(1, 0, picture(number, 96 + 32 * number, 160))]
            preparing = threads.submit(engine.prepare, coming)
            answer = engine.predict(tick, SHORT)
            preparing.result(60)
            assert answer.reasoning_token_ids == expected[number % 2].reasoning_token_ids
            np.testing.assert_array_equal(answer.xyz, expected[number % 2].xyz)
            assert number == 0 or answer.timings.frames_reused == 8


def test_memory_stays_as_it_is_after_warming_up(engine: NativeEngine) -> None:
    def run() -> tuple[int, int]:
        for change in WAYS:
            engine.predict(drive(navigation=ROUTE), replace(SHORT, **change))
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    gc.collect()  # of engines that other tests have closed, or else it is freed between two runs
    run()  # captures this size of image, and fills what is kept of frames
    run()
    assert run() == run()
