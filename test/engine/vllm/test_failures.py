"""A step that fails leaves nothing behind that later ticks would take for computed."""

from __future__ import annotations

import numpy as np
import pytest
from inside_vllm import broken_model
from overlapped_steps import OTHER_SCHEDULING
from tiny_checkpoint import drive

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.engine.vllm.engine import VllmEngine

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.parametrize("engine", [None, OTHER_SCHEDULING], ids=["as_by_default", OTHER_SCHEDULING], indirect=True),
]

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3)


@pytest.mark.parametrize(
    ("method", "works"),
    [("embed_multimodal", 0), ("forward", 0), ("compute_logits", 0), ("compute_logits", 3)],
    ids=["images", "prefill", "first_token", "later_token"],
)
def test_the_same_tick_comes_right_after_it_failed(
    engine: VllmEngine, reference: TransformersEngine, method: str, works: int
) -> None:
    """vLLM has the blocks and pictures of a step in its books before it runs."""
    observation = drive((0, 1, 2, 6))  # new frames
    with broken_model(engine, method, works), pytest.raises(EngineError, match="broken on purpose"):
        engine.predict(observation, SHORT)
    again, expected = engine.predict(observation, SHORT), reference.predict(observation, SHORT)
    assert again.reasoning_token_ids == expected.reasoning_token_ids
    np.testing.assert_allclose(again.xyz, expected.xyz, atol=2e-3)
