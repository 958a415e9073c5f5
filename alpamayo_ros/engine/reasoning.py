"""Writing the reasoning: sampled token by token, or taken from a draft where the draft says the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.sampling import sample_token, token_noise
from alpamayo_ros.model.backbone import Reading
from alpamayo_ros.model.vocabulary import Vocabulary


@dataclass(frozen=True)
class Written:
    """The tokens after a prompt, ending with the start of the trajectory; all of them are in the KV cache."""

    token_ids: tuple[int, ...]
    finish_reason: str  # stop, length, deadline, off, forced
    drafts_accepted: int = 0


class Writer:
    """Writes after a prompt that has been read.

    Args:
        vocabulary: of the model.
        options: temperature, nucleus, cap, deadline, drafts, seed.
        sample: k, whose noise is used.
        deadline: by time.monotonic(); None for no deadline.
    """

    def __init__(self, vocabulary: Vocabulary, options: SamplingOptions, sample: int, deadline: float | None) -> None:
        self._vocabulary = vocabulary
        self._options = options
        self._sample = sample
        self._deadline = deadline

    def reasoning(self, reading: Reading) -> Written:
        """Write until the trajectory starts; at the cap, the deadline or the end of the turn its start is forced."""
        vocabulary, cap = self._vocabulary, self._options.max_reasoning_tokens
        stops = (vocabulary.future_start, vocabulary.turn_end)
        tokens, accepted, reason = self._write(reading, cap, stops, masked=vocabulary.trajectory_ids)
        if reason == "stop" and tokens[-1] == vocabulary.future_start:
            reading.follow(tokens[-1:])
            return Written(tuple(tokens), "stop", accepted)
        if reason == "stop":  # the turn ended without a trajectory
            tokens.pop()
            reason = "forced"
        forced = forced_ending(vocabulary, tokens)
        reading.follow(forced)
        return Written((*tokens, *forced), reason, accepted)

    def answer(self, reading: Reading) -> list[int]:
        """Write until the answer or the turn ends."""
        vocabulary = self._vocabulary
        stops = (vocabulary.answer_end, vocabulary.turn_end)
        return self._write(reading, self._options.max_reasoning_tokens, stops, masked=range(0))[0]

    def _write(self, reading: Reading, cap: int, stops: tuple[int, ...], masked: range) -> tuple[list[int], int, str]:
        """Tokens until a stop, which is the last one and not in the cache yet; all others are."""
        tokens: list[int] = []
        draft = list(self._options.draft_token_ids)[:cap]
        pending = self._pick(reading.logits()[0], 0, masked) if cap else None
        accepted = 0
        while pending is not None:
            tokens.append(pending)
            if pending in stops:
                return tokens, accepted, "stop"
            if len(tokens) >= cap:
                reading.follow([pending])
                return tokens, accepted, "length"
            if self._deadline is not None and time.monotonic() > self._deadline:
                reading.follow([pending])
                return tokens, accepted, "deadline"
            ahead = self._usable_draft(draft, tokens, stops)
            start = len(reading)
            reading.follow([pending, *ahead])
            logits = reading.logits(1 + len(ahead))
            pending = self._pick(logits[0], len(tokens), masked)
            for index, guess in enumerate(ahead):
                if pending != guess:
                    break
                tokens.append(pending)
                accepted += 1
                pending = self._pick(logits[index + 1], len(tokens), masked)
            reading.crop(start + 1 + min(accepted, len(ahead)) if ahead else len(reading))
            if ahead:
                draft = []
                if pending is not None and len(tokens) >= cap:
                    return tokens, accepted, "length"
        return tokens, accepted, "length"

    def _usable_draft(self, draft: Sequence[int], tokens: Sequence[int], stops: tuple[int, ...]) -> list[int]:
        """What the draft says comes after these tokens, up to its stop; nothing when it says something else."""
        if not draft or list(draft[: len(tokens)]) != list(tokens):
            return []
        ahead = list(draft[len(tokens) :])
        for index, token in enumerate(ahead):
            if token in stops:
                return ahead[:index]
        return ahead

    def _pick(self, logits: Tensor, index: int, masked: range) -> int:
        options = self._options
        if masked:
            logits[masked.start : masked.stop] = float("-inf")
        noise = None
        if options.temperature > 0:
            noise = token_noise(options.seed, self._sample, index, logits.shape[-1])
        return sample_token(logits, options.temperature, options.top_p, noise)


def forced_ending(vocabulary: Vocabulary, tokens: Sequence[int]) -> list[int]:
    """What has to follow these tokens so that the trajectory starts."""
    closed = vocabulary.reasoning_end in tokens
    return [vocabulary.future_start] if closed else [vocabulary.reasoning_end, vocabulary.future_start]


def given(vocabulary: Vocabulary, text: str) -> Written:
    """A given text as reasoning; an empty one turns it off.

    Raises:
        EngineError: special tokens in the text.
    """
    special = vocabulary.added_tokens_in(text)
    if special:
        raise EngineError(f"the given reasoning {text!r} contains the special token {special[0]}; give plain text")
    tokens = vocabulary.encode(text) if text else []
    return Written((*tokens, *forced_ending(vocabulary, [])), "forced" if text else "off")


Synchronise = Callable[[], None]


def device_synchroniser(device: torch.device) -> Synchronise:
    """What waits for all work on a device."""
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None
