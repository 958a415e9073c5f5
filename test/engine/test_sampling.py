import numpy as np
import pytest
import torch
from transformers.generation.logits_process import TemperatureLogitsWarper, TopPLogitsWarper

from alpamayo_ros.engine.sampling import draw_token, filter_logits, flow_noise, gumbel_noise


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.98, 1.0])
@pytest.mark.parametrize("temperature", [0.1, 0.6, 1.0, 2.5])
def test_the_nucleus_is_that_of_transformers(temperature: float, top_p: float) -> None:
    logits = torch.randn(20, 500, generator=torch.Generator().manual_seed(3)) * 4
    logits[:, 100:200] = -torch.inf  # masked tokens stay out
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_p < 1:
        expected = TopPLogitsWarper(top_p)(None, expected)
    assert torch.equal(filter_logits(logits, temperature, top_p), expected)


def test_tokens_come_as_often_as_transformers_would_draw_them() -> None:
    logits = torch.tensor([2.0, 1.5, 1.0, 0.0, -1.0, -3.0])
    warped = TopPLogitsWarper(0.9)(None, TemperatureLogitsWarper(0.8)(None, logits[None]))[0]
    expected = warped.softmax(-1).numpy()
    draws = 6000
    counts = np.bincount([draw_token(logits, 0.8, 0.9, (7, 0, i)) for i in range(draws)], minlength=6)
    assert (counts[expected == 0] == 0).all()
    kept = expected > 0
    chi_square = ((counts - draws * expected)[kept] ** 2 / (draws * expected[kept])).sum()
    assert chi_square < 20  # 99.9 % of a chi-square distribution of 4 degrees of freedom lies below 18.5


def test_temperature_zero_takes_the_likeliest() -> None:
    logits = torch.tensor([0.0, 3.0, 2.9])
    assert {draw_token(logits, 0, 0.98, (seed, 0, 0)) for seed in range(20)} == {1}


def test_noise_depends_on_seed_sample_and_token_alone() -> None:
    noise = gumbel_noise(1, 2, 3, 50)
    assert torch.equal(noise, gumbel_noise(1, 2, 3, 50))
    assert torch.equal(noise[:20], gumbel_noise(1, 2, 3, 20))  # a token's noise doesn't depend on the vocabulary's size
    for other in ((0, 2, 3), (1, 0, 3), (1, 2, 0), (3, 2, 1)):
        assert not torch.equal(noise, gumbel_noise(*other, 50))


def test_noise_is_this_on_every_machine() -> None:
    # Philox4x64-10 with the key (1, 2 << 32 | 3): raw numbers are fixed by its definition
    expected = -np.log(-np.log((np.array([gumbel_bits()]) + 0.5) * 2.0**-53))
    assert gumbel_noise(1, 2, 3, 1).item() == pytest.approx(expected[0], abs=1e-6)


def gumbel_bits() -> int:
    """The first number of the stream, by Philox's definition in plain integers, 53 bits of it."""
    mask = 2**64 - 1
    counter, key = [1, 0, 0, 0], [1, 2 << 32 | 3]  # NumPy counts up before it draws
    for _ in range(10):
        low, high = counter[0] * 0xD2E7470EE14C6C93, counter[2] * 0xCA5A826395121157
        counter = [high >> 64 ^ counter[1] ^ key[0], high & mask, low >> 64 ^ counter[3] ^ key[1], low & mask]
        key = [key[0] + 0x9E3779B97F4A7C15 & mask, key[1] + 0xBB67AE8584CAA73B & mask]
    return counter[0] >> 11


def test_gumbel_noise_has_its_distribution() -> None:
    noise = gumbel_noise(0, 0, 0, 200_000).double()
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.01)
    assert noise.var().item() == pytest.approx(np.pi**2 / 6, rel=0.02)
    assert noise.isfinite().all()


def test_flow_noise_is_standard_normal_and_keyed_by_sample() -> None:
    noise = flow_noise(5, range(1000), 64)
    assert noise.shape == (1000, 64, 2)
    assert noise.dtype == torch.float32
    assert noise.mean().abs() < 0.01
    assert noise.std().item() == pytest.approx(1, abs=0.01)
    assert torch.corrcoef(noise.flatten(0, 1).T)[0, 1].abs() < 0.02
    assert torch.equal(flow_noise(5, [17], 64)[0], noise[17])
    assert not torch.equal(flow_noise(6, [17], 64)[0], noise[17])
    assert flow_noise(5, [0], 3, dimensions=3).shape == (1, 3, 3)


@pytest.mark.parametrize("seed", [0, 2**31, 2**63, 2**64 - 1, -1])
def test_any_seed_will_do(seed: int) -> None:
    assert gumbel_noise(seed, 0, 0, 4).isfinite().all()
