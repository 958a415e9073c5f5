"""What an engine was built for, and settings that go beyond it: refused at once, where every tick would fail."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from alpamayo_ros.core.settings import SamplingSettings, Settings
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, ConfigurationError
from alpamayo_ros.engine.base import EngineInfo

TEXT_TOKENS = 512  # of a prompt besides its images; NVIDIA's has 206 with four cameras, a route some more
REASONING_TOKENS = 1024  # that engines with a KV cache of fixed size have room for after the largest prompt
CLOSING_TOKENS = 2  # <|cot_end|><|traj_future_start|>
# of a text in the KV cache besides itself: a usual route and what follows it, and a block that isn't full
TEXT_OVERHEAD = 168


def largest_prompt(cameras: int, image_tokens: int) -> int:
    """Tokens of the largest prompt of so many cameras, with images of `image_tokens` each."""
    return cameras * FRAMES_PER_CAMERA * image_tokens + TEXT_TOKENS


def check_limits(settings: Settings, info: EngineInfo) -> None:
    """Refuse settings that this engine can't serve whatever it sees.

    Raises:
        ConfigurationError: with every parameter that goes beyond a limit, one a line: its value and the limit.
    """
    problems = [*_beyond_counts(settings, info)]
    if info.prompt_tokens:
        problems += _beyond_tokens(settings.sampling, info)
    if problems:
        raise ConfigurationError("\n".join(problems))


def _beyond_counts(settings: Settings, info: EngineInfo) -> Iterator[str]:
    samples, cameras = settings.sampling.num_samples, len(settings.cameras)
    if samples > info.max_samples:
        yield f"sampling.num_samples is {samples}: the engine takes at most {info.max_samples}"
    if cameras > info.max_cameras:
        yield f"the rig has {cameras} cameras: the engine takes at most {info.max_cameras}"


def _beyond_tokens(sampling: SamplingSettings, info: EngineInfo) -> Iterator[str]:
    room = max(info.max_tokens - info.prompt_tokens - CLOSING_TOKENS, 0)
    behind = f"after the largest prompt of this rig, {info.prompt_tokens} tokens, the engine has room for {room}"
    # no text has more tokens than bytes; how many it has only the checkpoint's tokenizer knows
    given = len(unicodedata.normalize("NFC", sampling.given_reasoning).encode()) if sampling.reasoning == "given" else 0
    if sampling.max_reasoning_tokens > room:  # also where none are written: a question's answer has as many
        yield f"sampling.max_reasoning_tokens is {sampling.max_reasoning_tokens}: {behind}"
    elif given > room:
        yield f"sampling.given_reasoning has {given} bytes, which may be as many tokens: {behind}"
    elif info.cache_tokens and sampling.reasoning != "off":
        yield from _beyond_cache(sampling, given or sampling.max_reasoning_tokens, info)


def _beyond_cache(sampling: SamplingSettings, tokens: int, info: EngineInfo) -> Iterator[str]:
    """What one tick's texts, of so many tokens each, take together."""
    independent, guided = sampling.reasoning == "independent", sampling.guidance_weight != 1
    texts = sampling.num_samples if independent else 1
    each = tokens + CLOSING_TOKENS + TEXT_OVERHEAD
    most = max(info.cache_tokens - info.prompt_tokens, 0) // (2 * each if guided else each)
    if texts > most:
        asked = "sampling.reasoning independent" if independent else "one text for all samples"
        twice = f", read twice by sampling.guidance_weight {sampling.guidance_weight:g}" if guided else ""
        yield (
            f"sampling.num_samples is {sampling.num_samples} with {asked} of {tokens} tokens{twice}: beside the "
            f"largest prompt the KV cache of {info.cache_tokens} tokens has room for {most} such texts; ask for fewer "
            "or shorter ones, or start with a larger engine.kv_cache_memory"
        )
