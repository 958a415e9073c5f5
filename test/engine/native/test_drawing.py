"""Draws on a device are the draws of the sampling's definition."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alpamayo_ros.engine.native.drawing import DeviceDraw
from alpamayo_ros.engine.native.philox import gumbel_rows, token_key
from alpamayo_ros.engine.sampling import draw_each, gumbel_noise

WORDS = st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)


@given(key=st.tuples(*WORDS), size=st.integers(1, 300))
@settings(deadline=None, max_examples=50)
def test_the_noise_is_the_same_bit_for_bit(key: tuple[int, int, int], size: int) -> None:
    noise = gumbel_rows(torch.tensor([token_key(0, 0, 0), token_key(*key)]), size)
    assert torch.equal(noise[1], gumbel_noise(*key, size))
    assert torch.equal(noise[0], gumbel_noise(0, 0, 0, size))


@pytest.mark.parametrize(("temperature", "top_p"), [(0.0, 0.98), (0.6, 0.98), (1.0, 1.0), (2.0, 0.3)])
def test_rows_are_drawn_as_one_by_one(temperature: float, top_p: float) -> None:
    generator = torch.Generator().manual_seed(4)
    draw = DeviceDraw(torch.device("cpu"))
    for first in range(20):
        logits = torch.randn(5, 400, generator=generator) * 3
        logits[:, 50:60] = -torch.inf
        keys = [(first, sample, 7 * sample + first) for sample in range(5)]
        assert draw(logits.clone(), temperature, top_p, keys) == draw_each(logits, temperature, top_p, keys)
