"""What a CPU can't show of FP8 layers: an engine on a GPU, with kernels and captured graphs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_checkpoint import drive

from alpamayo_ros.core.types import ConfigurationError, SamplingOptions
from alpamayo_ros.engine.fp8 import check_fp8
from alpamayo_ros.engine.native.engine import NativeEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (8, 9), reason="needs a GPU with FP8"
    ),
]

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)
GIVEN = replace(SHORT, reasoning="given", given_reasoning="Keep the lane.")
WAYS = [{}, {"num_samples": 3}, {"num_samples": 4, "reasoning": "independent"}, {"guidance_weight": 1.5}]


@pytest.fixture(scope="module", params=["fp8", "fp8_expert"])
def rounded(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[NativeEngine]:
    engine = NativeEngine.load(str(checkpoint), device="cuda", max_samples=4, max_cameras=2, quantization=request.param)
    engine.warm_up()
    yield engine
    engine.close()


@pytest.mark.parametrize("change", WAYS, ids=lambda change: "-".join(map(str, change.values())) or "one")
def test_paths_are_near_those_of_exact_layers(
    rounded: NativeEngine, checkpoint: Path, change: dict[str, object]
) -> None:
    observation = drive(navigation="Turn left in 30m")
    options = replace(GIVEN, **{name: value for name, value in change.items() if name != "reasoning"})
    with closing(NativeEngine.load(str(checkpoint), device="cuda", max_samples=4, max_cameras=2)) as exact:
        ours, theirs = rounded.predict(observation, options), exact.predict(observation, options)
    assert 0 < np.abs(ours.xyz - theirs.xyz).max() < 2
    first, again = (rounded.predict(observation, replace(SHORT, **change)) for _ in range(2))
    assert first.reasoning_token_ids == again.reasoning_token_ids
    np.testing.assert_array_equal(first.xyz, again.xyz)


def test_memory_stays_as_it_is_after_warming_up(rounded: NativeEngine) -> None:
    def run() -> tuple[int, int]:
        for change in WAYS:
            rounded.predict(drive(navigation="Turn left in 30m"), replace(SHORT, **change))
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    run()
    run()
    assert run() == run()


def test_other_types_are_refused(checkpoint: Path) -> None:
    with pytest.raises(ConfigurationError, match="float32"):
        NativeEngine.load(str(checkpoint), device="cuda", dtype="float32", quantization="fp8")
    check_fp8(torch.device("cuda"), torch.bfloat16)
