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
from alpamayo_ros.engine.native.kv_cache import BLOCK_SIZE
from alpamayo_ros.engine.null_engine import INFO, NullEngine
from alpamayo_ros.engine.options import check_length
from alpamayo_ros.engine.stage_clock import StageClock

BUILT = replace(
    INFO,
    max_samples=16,
    max_cameras=1,
    max_tokens=2048,
    prompt_tokens=1024,
    cache_tokens=4096,
    image_tokens=100,
)


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
        (  # (4096 - 4 * 100) / 12 = 308 = 306 + 2
            {"num_samples": 12, "reasoning": "independent", "max_reasoning_tokens": 306},
            {"num_samples": 12, "reasoning": "independent", "max_reasoning_tokens": 307},
            "sampling.num_samples is 12 with sampling.reasoning independent of 307 tokens: beside the smallest prompt "
            "of this rig the KV cache of 4096 tokens has room for 11 such texts",
        ),
        (
            {"num_samples": 16, "reasoning": "shared", "max_reasoning_tokens": 1022, "guidance_weight": 1.5},
            {"num_samples": 16, "reasoning": "independent", "max_reasoning_tokens": 1022},
            "has room for 3 such texts",
        ),
    ],
)
def test_the_first_value_beyond_a_limit_is_refused_with_the_limit(
    within: dict[str, Any], beyond: dict[str, Any], told: str
) -> None:
    check_limits(settings(**within), BUILT)
    with pytest.raises(ConfigurationError, match=told):
        check_limits(settings(**beyond), BUILT)


def test_a_camera_that_may_be_left_out_needs_no_room() -> None:
    rig = {"cameras.front_wide.topic": "/f", "cameras.front_tele.topic": "/t", "sampling.num_samples": 12}
    rig |= {"sampling.reasoning": "independent", "sampling.max_reasoning_tokens": 306}
    built = replace(BUILT, max_cameras=2)
    check_limits(parse_settings({**rig, "cameras.front_tele.required": False}), built)
    with pytest.raises(ConfigurationError, match="has room for 10 such texts"):
        check_limits(parse_settings(rig), built)


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


def test_one_text_of_all_tokens_that_are_promised_fits_after_the_largest_prompt(small: NativeEngine) -> None:
    observation = with_largest_prompt(small)
    chosen = settings(max_reasoning_tokens=most("max_reasoning_tokens", small.info, 4096), temperature=0.0)
    prediction = small.predict(observation, chosen.tick_options(observation))
    assert {len(tokens) for tokens in prediction.reasoning_token_ids} == {1022 + CLOSING_TOKENS}


least_cache = pytest.mark.parametrize("small", [LEAST_CACHE], indirect=True)


@least_cache
@pytest.mark.parametrize("samples", [2, 8])
def test_as_many_texts_as_the_cache_holds_are_not_refused_and_more_than_it_can_hold_are(
    small: NativeEngine, samples: int
) -> None:
    observation, info = drive((1,)), small.info
    prompt = len(small._tick(observation, SamplingOptions(), StageClock(torch.device("cpu"))).prompt)
    blocks = (info.cache_tokens - prompt) // BLOCK_SIZE - 1  # the prompt's last isn't full
    texts: dict[str, Any] = {"num_samples": samples, "reasoning": "independent", "temperature": 0.0}
    # of each text's blocks, the first begins with the prompt's end
    holds = blocks // samples * BLOCK_SIZE - prompt % BLOCK_SIZE - CLOSING_TOKENS
    fitting = settings(max_reasoning_tokens=holds, **texts)
    check_limits(fitting, info)
    assert small.predict(observation, fitting.tick_options(observation)).num_samples == samples
    slightly_more = settings(max_reasoning_tokens=holds + 1, **texts)
    with pytest.raises(EngineError, match="blocks of 16 tokens left"):
        small.predict(observation, slightly_more.tick_options(observation))
    allowed = most("max_reasoning_tokens", info, 4096, **texts)
    assert allowed - holds <= 2 * BLOCK_SIZE + prompt // samples
    with pytest.raises(EngineError, match=r"the KV cache has .* blocks of 16 tokens left, and the tick needs"):
        small.predict(observation, settings(max_reasoning_tokens=allowed + 1, **texts).tick_options(observation))


@least_cache
def test_guidance_that_only_ticks_with_a_route_have_no_room_for_fails_those_by_name(small: NativeEngine) -> None:
    chosen = settings(max_reasoning_tokens=1022, temperature=0.0, guidance_weight=1.5)
    check_limits(chosen, small.info)
    guided = with_largest_prompt(small)
    with pytest.raises(EngineError, match=r"ask for fewer .* or set engine.kv_cache_memory above"):
        small.predict(guided, chosen.tick_options(guided))
    plain = replace(guided, navigation=None)
    assert len(small.predict(plain, chosen.tick_options(plain)).reasoning_token_ids[0]) == 1022 + CLOSING_TOKENS


@least_cache
def test_a_given_text_is_measured_in_tokens(small: NativeEngine) -> None:
    """Not in bytes."""
    observation = with_largest_prompt(small)
    fits = settings(reasoning="given", given_reasoning="left " * 300)
    assert len(fits.sampling.given_reasoning) == 1500
    check_limits(fits, small.info)
    small.predict(observation, fits.tick_options(observation))
    beyond = settings(reasoning="given", given_reasoning="\N{GRINNING FACE}" * 400)
    check_limits(beyond, small.info)  # what only a tick can tell
    with pytest.raises(EngineError, match=r"given_reasoning has .* tokens; .* it has to have at most 1022"):
        small.predict(observation, beyond.tick_options(observation))


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
