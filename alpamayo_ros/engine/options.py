"""What an engine refuses before it starts: options and observations that can't be served."""

from __future__ import annotations

import math

from alpamayo_ros.core.types import EngineError, Observation, SamplingOptions
from alpamayo_ros.engine.base import EngineInfo
from alpamayo_ros.engine.limits import CLOSING_TOKENS
from alpamayo_ros.model.vocabulary import Vocabulary

REASONING = ("shared", "independent", "off", "given")
MAX_SAMPLE, MAX_TOKENS = 2**31, 2**31  # what the key of the noise holds


def check_options(options: SamplingOptions, observation: Observation, info: EngineInfo, vocabulary: Vocabulary) -> None:
    """Raise for what can't be served.

    Raises:
        EngineError: names the option, its value and what would be right.
    """
    problems = [
        (not 1 <= options.num_samples <= info.max_samples, "num_samples", f"from 1 to {info.max_samples}"),
        (not 0 <= options.temperature < math.inf, "temperature", "0 or more"),
        (not 0 < options.top_p <= 1, "top_p", "above 0 and at most 1"),
        (not 0 <= options.max_reasoning_tokens < MAX_TOKENS, "max_reasoning_tokens", "0 or more"),
        (options.deadline_ms is not None and not options.deadline_ms >= 0, "deadline_ms", "0 or more"),
        (options.reasoning not in REASONING, "reasoning", f"one of {', '.join(REASONING)}"),
        (options.flow_steps is not None and options.flow_steps < 1, "flow_steps", "at least 1"),
        (not 0 <= options.noise_temperature < math.inf, "noise_temperature", "0 or more"),
    ]
    for wrong, name, right in problems:
        if wrong:
            raise EngineError(f"{name} is {getattr(options, name)!r}; it has to be {right}")
    weight = options.guidance_weight
    if weight is not None and not math.isfinite(weight):
        raise EngineError(f"guidance_weight is {weight}; it has to be finite")
    if weight is not None and weight != 1 and observation.navigation is None:
        raise EngineError(f"guidance_weight is {weight}, but there is no navigation text to follow")
    if not 1 <= len(observation.frames) <= info.max_cameras:
        raise EngineError(f"the observation has {len(observation.frames)} cameras; from 1 to {info.max_cameras} can be")
    if options.reasoning == "given":
        special = vocabulary.added_tokens_in(options.given_reasoning)
        if special:
            raise EngineError(f"given_reasoning contains the special token {special[0]}; it has to be plain text")


def check_length(prompt_tokens: int, options: SamplingOptions, info: EngineInfo) -> None:
    """Raise for a prompt and reasoning that are too long together.

    Raises:
        EngineError: names how many reasoning tokens there can be, or how many the prompt may have.
    """
    room = info.max_tokens - prompt_tokens - CLOSING_TOKENS
    if room < 0:
        raise EngineError(
            f"the prompt has {prompt_tokens} tokens and may have {info.max_tokens - CLOSING_TOKENS}; the navigation "
            "text or the question has to be shorter"
        )
    if options.max_reasoning_tokens > room:
        raise EngineError(
            f"max_reasoning_tokens is {options.max_reasoning_tokens}; with a prompt of {prompt_tokens} tokens "
            f"it has to be at most {room}"
        )


def check_fixed_length(prompt_tokens: int, tokens: int, info: EngineInfo) -> None:
    """Raise for a prompt and a given reasoning, with the tokens that close it, that are too long together.

    Raises:
        EngineError: names how many tokens the reasoning may have.
    """
    if prompt_tokens + tokens > info.max_tokens:
        raise EngineError(
            f"given_reasoning has {tokens - CLOSING_TOKENS} tokens; with a prompt of {prompt_tokens} tokens it has to "
            f"have at most {info.max_tokens - prompt_tokens - CLOSING_TOKENS}"
        )
