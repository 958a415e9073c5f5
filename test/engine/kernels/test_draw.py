"""What the kernels draw is what the sampling's definition draws."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.kernels.draw import draw_rows
from alpamayo_ros.engine.native.philox import token_key
from alpamayo_ros.engine.sampling import Key, draw_each, gumbel_noise

NOTHING = range(0)


def drawn(
    logits: torch.Tensor, temperature: float, top_p: float, keys: list[Key], forbidden: range = NOTHING
) -> list[int]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    words = torch.tensor([token_key(*key) for key in keys], device=device)
    tokens: list[int] = draw_rows(
        logits.to(device), words, torch.tensor([temperature, top_p], device=device), forbidden
    ).tolist()
    return tokens


@pytest.mark.parametrize("size", [7, 1024, 2500])
def test_the_noise_is_that_of_every_key(size: int) -> None:
    keys = [(0, 0, 0), (3, 1, 2), (2**64 - 5, 2**31 - 1, 2**31 - 1), (-7, 0, 255)]
    alike = torch.zeros(len(keys), size)
    assert drawn(alike, 1.0, 1.0, keys) == [int(gumbel_noise(*key, size).argmax()) for key in keys]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**40),
    size=st.integers(2, 1500),
    rows=st.integers(1, 3),
    temperature=st.sampled_from([0.0, 0.3, 0.6, 1.0, 2.0]),
    top_p=st.sampled_from([0.05, 0.3, 0.9, 0.98, 1.0]),
    spread=st.sampled_from([0.1, 1.0, 8.0]),
    levels=st.booleans(),
)
def test_tokens_are_those_of_the_definition(
    seed: int, size: int, rows: int, temperature: float, top_p: float, spread: float, levels: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, size, generator=generator) * spread
    if levels:  # as bfloat16 has them: many tokens are as likely as others
        logits = logits.bfloat16().float()
    keys = [(seed, sample, 5 * sample) for sample in range(rows)]
    assert drawn(logits, temperature, top_p, keys) == draw_each(logits.clone(), temperature, top_p, keys)


def test_the_best_among_the_likely_is_found_behind_unlikely_ones() -> None:
    logits = torch.linspace(0, 3, 200)[None]
    for token in range(40):
        key = (1, 0, token)
        assert drawn(logits, 1.0, 0.2, [key]) == draw_each(logits.clone(), 1.0, 0.2, [key])


def test_what_is_forbidden_is_never_drawn() -> None:
    logits = torch.zeros(1, 300)
    logits[:, 100:200] = 50.0
    masked = logits.clone()
    masked[:, 100:200] = -torch.inf
    for token in range(10):
        key = (2, 0, token)
        assert drawn(logits, 0.7, 0.9, [key], range(100, 200)) == draw_each(masked.clone(), 0.7, 0.9, [key])


@pytest.mark.parametrize("temperature", [0.0, 0.6])
@pytest.mark.parametrize("size", [300, 2500])
def test_what_is_drawn_from_logits_that_are_no_numbers_is_a_token(temperature: float, size: int) -> None:
    """Its embedding is read next: a number behind the vocabulary would end the device's context for good."""
    logits = torch.full((2, size), torch.nan)
    logits[1] = 0.0
    token, other = drawn(logits, temperature, 0.98, [(0, 0, 0), (0, 1, 0)])
    assert 0 <= token < size
    assert [other] == draw_each(logits[1:].clone(), temperature, 0.98, [(0, 1, 0)])
