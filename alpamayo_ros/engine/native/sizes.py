"""How much the native engine sets aside for a rig."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.limits import REASONING_TOKENS, TEXT_TOKENS, largest_prompt
from alpamayo_ros.model.config import ModelConfig

BRANCH_TOKENS = 320  # of each of several samples: 256 of reasoning, a route's rest, and the prompt's last block
BRANCHES = 32  # sixteen samples, with guidance
PROMPTS = 4  # of the largest size, that can be read side by side
GIB = 1 << 30


@dataclass(frozen=True)
class Sizes:
    """What follows from the rig and the model."""

    samples: int  # of a tick, at most
    sequence_tokens: int  # of a prompt and its reasoning, at most
    cache_tokens: int
    prompt_tokens: range  # of the rig's prompts, with pictures nearly as large as the model takes them

    @classmethod
    def of(cls, config: ModelConfig, dtype: torch.dtype, cameras: int, samples: int, kv_cache_gib: float) -> Sizes:
        """Size everything.

        Args:
            config: The model's.
            dtype: Of the KV cache.
            cameras, samples: At most.
            kv_cache_gib: Of the KV cache; 0: four prompts, and reasoning for sixteen samples with guidance.

        Raises:
            EngineError: a KV cache that can't hold the longest sequence.
        """
        prompt = largest_prompt(cameras, config.images.max_tokens)
        pictures = prompt - TEXT_TOKENS
        sequence = min(prompt + REASONING_TOKENS, config.backbone.max_positions)
        text = config.backbone.text
        per_token = 2 * text.num_hidden_layers * text.num_key_value_heads * text.head_dim * dtype.itemsize
        tokens = PROMPTS * sequence + min(2 * samples, BRANCHES) * BRANCH_TOKENS
        if kv_cache_gib:
            tokens = int(kv_cache_gib * GIB / per_token)
            if tokens < sequence:
                raise EngineError(
                    f"engine.kv_cache_memory is {kv_cache_gib:g} GiB; with {cameras} cameras the longest sequence has "
                    f"{sequence} tokens and needs {per_token * sequence / GIB:.3g}"
                )
        prompts = range(min(pictures * 7 // 8, sequence), min(prompt, sequence))
        return cls(samples, sequence, tokens, prompts)
