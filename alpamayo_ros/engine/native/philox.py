"""The keyed noise of engine/sampling.py made on the device: the same numbers, without a copy for every token.

Philox 4x64 of ten rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3), as NumPy's `Philox` numbers its
raw stream. Torch has no unsigned 64-bit arithmetic, so int64 holds the bits: sums and products wrap alike, and shifts
to the right are masked.
"""

from __future__ import annotations

import torch
from torch import Tensor

_ROUNDS = 10
_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
_KEY_STEPS = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
_LOW = 0xFFFFFFFF


def token_key(seed: int, sample: int, token: int) -> tuple[int, int]:
    """The two words of the key of a token's noise, as int64; see `_uniform` in engine/sampling.py."""
    return _signed(seed % 2**64), _signed(sample << 32 | token)


def gumbel_rows(keys: Tensor, size: int) -> Tensor:
    """Standard Gumbel noise [B, size] float32 of keys [B, 2] int64: `gumbel_noise`, up to the device's logarithm."""
    blocks = (size + 3) // 4
    counter = torch.arange(1, blocks + 1, device=keys.device).expand(len(keys), -1)
    zero = torch.zeros_like(counter)
    words = [counter, zero, zero, zero]
    first, second = keys[:, :1], keys[:, 1:]
    for number in range(_ROUNDS):
        if number:
            first, second = first + _signed(_KEY_STEPS[0]), second + _signed(_KEY_STEPS[1])
        high0, low0 = _product(words[0], _MULTIPLIERS[0])
        high1, low1 = _product(words[2], _MULTIPLIERS[1])
        words = [high1 ^ words[1] ^ first, low1, high0 ^ words[3] ^ second, low0]
    bits = torch.stack(words, -1).flatten(1)[:, :size]
    uniform = (((bits >> 11) & (2**53 - 1)).double() + 0.5) * 2.0**-53
    return (-torch.log(-torch.log(uniform))).float()


def _product(words: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """The high and the low 64 bits of unsigned products, from products of halves."""
    high, low = words >> 32 & _LOW, words & _LOW
    factor_high, factor_low = factor >> 32, factor & _LOW
    middle = factor_high * low + (factor_low * low >> 32 & _LOW)
    carry = (middle & _LOW) + factor_low * high
    return factor_high * high + (middle >> 32 & _LOW) + (carry >> 32 & _LOW), words * _signed(factor)


def _signed(word: int) -> int:
    """The int64 of the same bits."""
    return word - 2**64 if word >= 2**63 else word
