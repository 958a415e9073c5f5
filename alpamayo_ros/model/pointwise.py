"""What stands between the matrix products of the expert's layers.

On a GPU each is one kernel (engine/kernels/between_products.py): the ten Euler steps of 36 layers are some 20,000 small
ones otherwise, and take longer than the products. What is here is the truth for tests of those.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimension, in float32, cast back, times the weight (RMSNorm)."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return wide.to(x.dtype) * weight


def add_and_norm(x: Tensor, change: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The sum, and its norm."""
    total = x + change
    return total, norm(total, weight, eps)


def norm_and_rotate(states: Tensor, weight: Tensor, eps: float, cosines: Tensor, sines: Tensor) -> Tensor:
    """The norm of every head [B, G, N, heads, dim], then the rotary embedding: a head's halves turn as pairs.

    Args:
        states, weight, eps: As for `norm`.
        cosines, sines: [B, N, dim].
    """
    normed = norm(states, weight, eps)
    first, second = normed.chunk(2, -1)
    turned = torch.cat((-second, first), -1)
    return normed * cosines[:, None, :, None] + turned * sines[:, None, :, None]


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    return functional.silu(gate) * up
