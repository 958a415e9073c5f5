"""Keyed randomness: every draw has its own noise, by the seed, the sample and the token's place, and nothing else.

The noise is made on the CPU by Philox (a counter-based generator; its raw stream is fixed by its definition), so that
a draw is the same on every device, alone or in a batch, with or without drafts. Tokens are drawn by the Gumbel-max
rule: the argmax of logits plus Gumbel noise is distributed as their softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_TOKENS, _FLOW = 0, 1  # what a stream is for

Key = tuple[int, int, int]  # seed, sample, place of the token
# logits [B, V] float32 that it may overwrite, temperature, top_p, a key per row -> a token per row
DrawTokens = Callable[[Tensor, float, float, Sequence[Key]], list[int]]


def gumbel_noise(seed: int, sample: int, token: int, size: int) -> Tensor:
    """Standard Gumbel noise [size] float32 for the token at place `token` of a sample."""
    uniform = _uniform(seed, _TOKENS, sample, token, size)
    return torch.from_numpy((-np.log(-np.log(uniform))).astype(np.float32))


def flow_noise(seed: int, samples: Sequence[int], steps: int, dimensions: int = 2) -> Tensor:
    """Standard normal noise [len(samples), steps, dimensions] float32, by Box and Muller."""
    rows = []
    half = (steps * dimensions + 1) // 2
    for sample in samples:
        uniform = _uniform(seed, _FLOW, sample, 0, 2 * half).reshape(2, half)
        radius, angle = np.sqrt(-2 * np.log(uniform[0])), 2 * np.pi * uniform[1]
        normal = np.stack((radius * np.cos(angle), radius * np.sin(angle)), -1)
        rows.append(normal.reshape(-1)[: steps * dimensions].reshape(steps, dimensions))
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def filter_logits(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    """Scale logits [..., V] and put -inf on all but the likeliest tokens that together have probability `top_p`.

    The rule for the last token is transformers' (TopPLogitsWarper): at least one token stays. As likely ones stay or go
    together, which there hangs on how a sort orders them.
    """
    scaled = logits / temperature
    if top_p >= 1:
        return scaled
    ascending = scaled.sort(dim=-1).values
    unlikely = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
    unlikely[..., -1] = False
    least = ascending.masked_fill(unlikely, torch.inf).amin(-1, keepdim=True)
    return scaled.masked_fill(scaled < least, -torch.inf)


def draw_token(logits: Tensor, temperature: float, top_p: float, key: Key) -> int:
    """Draw a token from logits [V]; the likeliest at temperature 0.

    Args:
        logits: [V] float32; -inf where a token is forbidden.
        temperature, top_p: as in SamplingOptions.
        key: seed, sample, place of the token.
    """
    if temperature > 0:
        noise = gumbel_noise(*key, logits.shape[-1]).to(logits.device)
        logits = filter_logits(logits, temperature, top_p) + noise
    return int(logits.argmax())


def draw_each(logits: Tensor, temperature: float, top_p: float, keys: Sequence[Key]) -> list[int]:
    """Draw a token from every row of logits [B, V], one after the other."""
    return [draw_token(row, temperature, top_p, key) for row, key in zip(logits, keys, strict=True)]


def _uniform(seed: int, purpose: int, sample: int, token: int, count: int) -> NDArray[np.float64]:
    """Numbers in (0, 1) from the stream of this key."""
    key = np.array([seed % 2**64, purpose << 63 | sample << 32 | token], dtype=np.uint64)
    bits = np.random.Philox(key=key).random_raw(count)
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
