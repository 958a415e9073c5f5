"""What an engine was built for, and settings that go beyond it: refused at once, where every tick would fail."""

from __future__ import annotations

from collections.abc import Iterator

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import FRAMES_PER_CAMERA, ConfigurationError
from alpamayo_ros.engine.base import EngineInfo

TEXT_TOKENS = 512  # of a prompt besides its images; NVIDIA's has 206 with four cameras, a route some more
REASONING_TOKENS = 1024  # that engines with a KV cache of fixed size have room for after the largest prompt
CLOSING_TOKENS = 2  # <|cot_end|><|traj_future_start|>


def largest_prompt(cameras: int, image_tokens: int) -> int:
    """Tokens of the largest prompt of so many cameras, with images of `image_tokens` each."""
    return cameras * FRAMES_PER_CAMERA * image_tokens + TEXT_TOKENS


def check_limits(settings: Settings, info: EngineInfo) -> None:
    """Refuse more than the engine was built for, and settings that every tick would fail with.

    What some ticks have room for and others don't is not refused, nor is a given text, whose tokens only the
    checkpoint's tokenizer can count: a tick that has no room for it says so itself.

    Raises:
        ConfigurationError: with every parameter that goes beyond a limit, one a line: its value and the limit.
    """
    problems = [*_beyond_counts(settings, info)]
    if info.prompt_tokens:
        problems += _beyond_tokens(settings, info)
    if problems:
        raise ConfigurationError("\n".join(problems))


def _beyond_counts(settings: Settings, info: EngineInfo) -> Iterator[str]:
    samples, cameras = settings.sampling.num_samples, len(settings.cameras)
    if samples > info.max_samples:
        yield f"sampling.num_samples is {samples}: the engine takes at most {info.max_samples}"
    if cameras > info.max_cameras:
        yield f"the rig has {cameras} cameras: the engine takes at most {info.max_cameras}"


def _beyond_tokens(settings: Settings, info: EngineInfo) -> Iterator[str]:
    sampling = settings.sampling
    room = max(info.max_tokens - info.prompt_tokens - CLOSING_TOKENS, 0)
    if sampling.max_reasoning_tokens > room:  # also where none are written: a question's answer has as many
        yield (
            f"sampling.max_reasoning_tokens is {sampling.max_reasoning_tokens}: after the largest prompt of this rig, "
            f"{info.prompt_tokens} tokens, the engine has room for {room}"
        )
    elif sampling.reasoning == "independent" and info.cache_tokens:
        yield from _beyond_cache(settings, info)


def _beyond_cache(settings: Settings, info: EngineInfo) -> Iterator[str]:
    """What one tick's texts take together, besides the prompt that they share.

    Guidance isn't counted: a tick without a route goes without it, and one with it reads no more than was written.
    """
    sampling = settings.sampling
    each = sampling.max_reasoning_tokens + CLOSING_TOKENS
    most = max(info.cache_tokens - _least_prompt(settings, info), 0) // each
    if sampling.num_samples > most:
        yield (
            f"sampling.num_samples is {sampling.num_samples} with sampling.reasoning independent of "
            f"{sampling.max_reasoning_tokens} tokens: beside the smallest prompt of this rig the KV cache of "
            f"{info.cache_tokens} tokens has room for {most} such texts; ask for fewer or shorter ones, or start with "
            "a larger engine.kv_cache_memory"
        )


def _least_prompt(settings: Settings, info: EngineInfo) -> int:
    """Tokens that every prompt of the rig has: those of its images, if they are the smallest."""
    return sum(camera.required for camera in settings.cameras) * FRAMES_PER_CAMERA * info.image_tokens
