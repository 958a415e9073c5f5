"""Keyed randomness: token i of sample k depends on (seed, k, i) alone, its flow's noise on (seed, k).

So a result does not change with drafts, batches, devices or the order of work.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_TOKENS, _FLOW = 0, 1  # streams of one key


def _generator(seed: int, sample: int, stream: int, index: int) -> np.random.Generator:
    """A counter-based generator (Philox, Salmon et al., SC 2011) at a place of its own.

    Its lowest counter word runs; stream and index stand in the higher ones, so that no two places overlap.
    """
    key = np.array([seed % 2**64, sample], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(counter=[0, 0, stream, index], key=key))


def token_noise(seed: int, sample: int, index: int, size: int) -> Tensor:
    """Standard Gumbel noise [size] float32 for one token."""
    return torch.from_numpy(_generator(seed, sample, _TOKENS, index).gumbel(size=size).astype(np.float32))


def flow_noise(seed: int, sample: int, waypoints: int) -> Tensor:
    """Standard normal noise [waypoints, 2] float32, where the flow of one sample starts."""
    noise = _generator(seed, sample, _FLOW, 0).standard_normal((waypoints, 2))
    return torch.from_numpy(noise.astype(np.float32))


def sample_token(logits: Tensor, temperature: float, top_p: float, noise: Tensor | None) -> int:
    """Draw a token by the Gumbel-max trick: the largest of filtered logits plus noise (Gumbel 1954).

    Args:
        logits: [V]; tokens that may not be written hold -inf.
        temperature: divides the logits; 0 takes the largest.
        top_p: keeps the fewest most likely tokens whose probabilities add up to it.
        noise: [V] as `token_noise` gives it; None where temperature is 0.
    """
    logits = logits.float()
    if temperature == 0 or noise is None:
        return int(logits.argmax())
    return int((nucleus(logits / temperature, top_p) + noise.to(logits.device)).argmax())


def nucleus(logits: Tensor, top_p: float) -> Tensor:
    """Logits [V] with -inf on every token outside the nucleus (Holtzman et al., ICLR 2020), as transformers cuts it."""
    if top_p >= 1:
        return logits
    ascending, order = logits.sort()
    below = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
    below[-1] = False
    return logits.masked_fill(torch.zeros_like(below).scatter(0, order, below), float("-inf"))
