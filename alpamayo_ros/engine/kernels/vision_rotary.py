"""The vision tower's rotary embedding of queries and keys, in place and in one kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from alpamayo_ros.engine.kernels.launch import launch_options, wait_for_inputs


def rotate_in_place(states: Tensor, cosines: Tensor, sines: Tensor) -> None:
    """Turn the halves of each head of queries and keys as pairs, in float32.

    Args:
        states: [T, 3, heads, dim], contiguous: queries, keys and values.
        cosines, sines: [T, dim] float32, both halves alike.
    """
    tokens, _, heads, dim = states.shape
    assert states.is_contiguous(), "a product's output is"
    _rotate_kernel[(tokens, 2)](
        states,
        cosines,
        sines,
        HEADS=heads,
        HALF=dim // 2,
        HEADS_PADDED=triton.next_power_of_2(heads),
        HALF_PADDED=triton.next_power_of_2(dim // 2),
        num_warps=2,
        **launch_options(torch.device(states.device)),
    )


@triton.jit
def _rotate_kernel(
    states,
    cosines,
    sines,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS_PADDED: tl.constexpr,
    HALF_PADDED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    token = tl.program_id(0)
    head = tl.arange(0, HEADS_PADDED)[:, None]
    place = tl.arange(0, HALF_PADDED)[None, :]
    inside = (head < HEADS) & (place < HALF)
    angle = token * 2 * HALF + place
    cosine = tl.load(cosines + angle, mask=place < HALF, other=0.0)
    sine = tl.load(sines + angle, mask=place < HALF, other=0.0)
    wait_for_inputs(DEPENDENT)
    at = states + ((token.to(tl.int64) * 3 + tl.program_id(1)) * HEADS + head) * 2 * HALF + place
    first = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(at + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(at, (first * cosine - second * sine).to(states.dtype.element_ty), mask=inside)
    tl.store(at + HALF, (second * cosine + first * sine).to(states.dtype.element_ty), mask=inside)
