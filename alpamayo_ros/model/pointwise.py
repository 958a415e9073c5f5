"""What stands between the matrix products of the expert's layers: functions that a compiler can make one kernel each.

On a GPU the ten Euler steps of 36 layers are some 20,000 small kernels otherwise, and take longer than the products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

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


def merged(one: Tensor, one_weight: Tensor, other: Tensor, other_weight: Tensor) -> Tensor:
    """Attention to two parts of a sequence as attention to the whole.

    Args:
        one, other: [..., dim], the mixed values of each part.
        one_weight, other_weight: [...] float32, the log-sum-exp of each part's scores.
    """
    share = torch.sigmoid(one_weight - other_weight)[..., None]
    return torch.lerp(other.float(), one.float(), share).to(one.dtype)


@dataclass(frozen=True)
class Pointwise:
    """These functions, or what a compiler made of them."""

    norm: Callable[[Tensor, Tensor, float], Tensor] = norm
    add_and_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]] = add_and_norm
    norm_and_rotate: Callable[[Tensor, Tensor, float, Tensor, Tensor], Tensor] = norm_and_rotate
    gated: Callable[[Tensor, Tensor], Tensor] = gated
    merged: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = merged


PLAIN = Pointwise()


@cache
def compiled() -> Pointwise:
    """Each as one kernel. The first calls with one and with several samples compile, which takes seconds."""
    return Pointwise(
        norm=torch.compile(norm),
        add_and_norm=torch.compile(add_and_norm),
        norm_and_rotate=torch.compile(norm_and_rotate),
        gated=torch.compile(gated),
        merged=torch.compile(merged),
    )
