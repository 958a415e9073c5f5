"""Settings beyond what an engine was built for are refused; those within it never fail a tick."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_checkpoint import drive, picture, raw_frame

from alpamayo_ros.core.settings import Settings, parse_settings
from alpamayo_ros.core.types import ConfigurationError, EngineError, Observation, SamplingOptions
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.engine.limits import CLOSING_TOKENS, check_limits
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.engine.null_engine import INFO, NullEngine
from alpamayo_ros.engine.options import check_length
from alpamayo_ros.engine.stage_clock import StageClock

BUILT = replace(INFO, max_samples=16, max_cameras=1, max_tokens=2048, prompt_tokens=1024, cache_tokens=4096)


def settings(**sampling: Any) -> Settings:
    return parse_settings({"cameras.front_wide.topic": "/f", **{f"sampling.{n}": v for n, v in sampling.items()}})


@pytest.mark.parametrize(
    ("within", "beyond", "told"),
    [
        ({"num_samples": 16}, {"num_samples": 17}, "sampling.num_samples is 17: the engine takes at most 16"),
        (
            {"max_reasoning_tokens": 1022},
            {"max_reasoning_tokens": 1023},
            "sampling.max_reasoning_tokens is 1023: after the largest prompt of this rig, 1024 tokens, the engine has "
            "room for 1022",
        ),
        (  # a question's answer has as many
            {"max_reasoning_tokens": 1022, "reasoning": "off"},
            {"max_reasoning_tokens": 1023, "reasoning": "off"},
            "sampling.max_reasoning_tokens is 1023",
        ),
        (
            {"reasoning": "given", "given_reasoning": "a" * 1022},
            {"reasoning": "given", "given_reasoning": "a" * 1021 + "ä"},
            "sampling.given_reasoning has 1023 bytes, which may be as many tokens: after the largest prompt",
        ),
        (  # (4096 - 1024) / 12 = 256 = 86 + 2 + 168
            {"num_samples": 12, "reasoning": "independent", "max_reasoning_tokens": 86},
            {"num_samples": 12, "reasoning": "independent", "max_reasoning_tokens": 87},
            "sampling.num_samples is 12 with sampling.reasoning independent of 87 tokens: beside the largest prompt "
            "the KV cache of 4096 tokens has room for 11 such texts",
        ),
        (
            {"num_samples": 6, "reasoning": "independent", "max_reasoning_tokens": 86, "guidance_weight": 1.5},
            {"num_samples": 7, "reasoning": "independent", "max_reasoning_tokens": 86, "guidance_weight": 1.5},
            r"of 86 tokens, read twice by sampling.guidance_weight 1.5: .* has room for 6 such texts",
        ),
        (
            {"num_samples": 16, "reasoning": "shared", "max_reasoning_tokens": 1000},
            {"num_samples": 16, "reasoning": "independent", "max_reasoning_tokens": 1000},
            "has room for 2 such texts",
        ),
    ],
)
def test_the_first_value_beyond_a_limit_is_refused_with_the_limit(
    within: dict[str, Any], beyond: dict[str, Any], told: str
) -> None:
    check_limits(settings(**within), BUILT)
    with pytest.raises(ConfigurationError, match=told):
        check_limits(settings(**beyond), BUILT)


def test_more_cameras_than_it_was_built_for_are_refused() -> None:
    rig = parse_settings({"cameras.front_wide.topic": "/f", "cameras.front_tele.topic": "/t"})
    with pytest.raises(ConfigurationError, match="the rig has 2 cameras: the engine takes at most 1"):
        check_limits(rig, BUILT)


def test_every_limit_that_is_passed_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"num_samples is 60.*\n.*max_reasoning_tokens is 2000"):
        check_limits(settings(num_samples=60, max_reasoning_tokens=2000), BUILT)


def test_an_engine_that_writes_nothing_has_no_limit_of_tokens() -> None:
    check_limits(settings(num_samples=64, reasoning="independent", max_reasoning_tokens=4096), NullEngine().info)


LEAST_CACHE = 1602 * 2048 / 2**30  # GiB, of the tiny checkpoint in float32


@pytest.fixture(scope="module", params=[LEAST_CACHE, 0.0], ids=["least cache", "usual cache"])
def small(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[NativeEngine]:
    """An engine for one camera."""
    engine = NativeEngine.load(
        str(checkpoint), device="cpu", max_samples=8, max_cameras=1, kv_cache_memory=request.param
    )
    yield engine
    engine.close()


def with_largest_prompt(engine: NativeEngine) -> Observation:
    """Pictures as large as the model takes them, and a route that fills the prompt up."""
    observation = drive((1,), navigation="left " * 383)
    frames = tuple(raw_frame(1, frame.stamp_ns, picture(0, 512, 512)) for frame in observation.frames[1])
    observation = replace(observation, frames={1: frames})
    tick = engine._tick(observation, SamplingOptions(), StageClock(torch.device("cpu")))
    assert len(tick.prompt) == engine.info.prompt_tokens
    return observation


def most(name: str, info: EngineInfo, high: int, **others: Any) -> int:
    """The largest value that isn't refused, by bisection."""
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check_limits(settings(**{name: middle, **others}), info)
            low = middle
        except ConfigurationError:
            high = middle
    return low


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"guidance_weight": 1.5},
        {"num_samples": 2, "reasoning": "independent"},
        {"num_samples": 2, "reasoning": "independent", "guidance_weight": 1.5},
    ],
    ids=lambda others: "-".join(map(str, others.values())) or "plain",
)
def test_what_is_not_refused_fits_after_the_largest_prompt(small: NativeEngine, others: dict[str, Any]) -> None:
    observation = with_largest_prompt(small)
    allowed = most("max_reasoning_tokens", small.info, 4096, **others)
    chosen = settings(max_reasoning_tokens=allowed, temperature=0.0, **others)
    prediction = small.predict(observation, chosen.tick_options(observation))
    assert all(len(tokens) == allowed + CLOSING_TOKENS for tokens in prediction.reasoning_token_ids)


def test_a_text_that_leaves_no_room_at_all_is_told_from_a_reasoning_that_is_too_long() -> None:
    options = SamplingOptions(max_reasoning_tokens=0)
    check_length(2046, options, BUILT)
    with pytest.raises(EngineError, match="the prompt has 2047 tokens and may have 2046; the navigation text or"):
        check_length(2047, options, BUILT)
    with pytest.raises(EngineError, match=r"max_reasoning_tokens is 10; with a prompt of 2040 .* it has to be .* 6"):
        check_length(2040, SamplingOptions(max_reasoning_tokens=10), BUILT)


def test_what_is_refused_would_fail_at_a_tick(small: NativeEngine) -> None:
    observation = with_largest_prompt(small)
    beyond = settings(max_reasoning_tokens=1023)
    with pytest.raises(ConfigurationError, match=r"sampling.max_reasoning_tokens is 1023: .* room for 1022"):
        check_limits(beyond, small.info)
    with pytest.raises(EngineError, match="it has to be at most 1022"):
        small.predict(observation, beyond.tick_options(observation))
