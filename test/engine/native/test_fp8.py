"""FP8 layers, simulated on a CPU: how far answers are from exact ones, and that they are asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_checkpoint import drive

from alpamayo_ros.core.types import ConfigurationError, SamplingOptions
from alpamayo_ros.engine import fp8
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.fp8 import FP8, LARGEST, Fp8Rows
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.engine.native.pieces import PlainPieces
from alpamayo_ros.engine.native.simulated_fp8 import SimulatedFp8Pieces

SHORT = SamplingOptions(max_reasoning_tokens=6, seed=3, num_samples=2)
GIVEN = replace(SHORT, reasoning="given", given_reasoning="Keep the lane.")
EPS = 1e-6
PATH_TOLERANCE = 1.0  # m


@pytest.fixture(scope="module")
def rounded(checkpoint: Path) -> NativeEngine:
    return NativeEngine.load(str(checkpoint), device="cpu", max_samples=4, max_cameras=4, quantization="fp8")


def test_a_matrix_in_fp8_is_off_by_a_sixteenth_at_most() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(7, 300) * torch.logspace(-4, 4, 7)[:, None]
    rows = Fp8Rows.of(matrix)
    assert rows.values.dtype == FP8
    assert (rows.values.float().abs().amax(-1) == LARGEST).all()
    off = (rows.numbers(torch.float32) - matrix).abs()
    assert (off <= 2**-4 * matrix.abs() + 2**-10 * rows.scales).all()
    assert 0.01 < off.norm() / matrix.norm() < 0.04


def test_a_row_of_zeros_stays_one() -> None:
    assert (Fp8Rows.of(torch.zeros(2, 16)).numbers(torch.float32) == 0).all()


@pytest.mark.parametrize("tokens", [1, 5])
def test_products_are_near_exact_ones(tokens: int) -> None:
    torch.manual_seed(0)
    hidden, normed, weight = torch.randn(tokens, 64), 1 + 0.1 * torch.randn(64), torch.randn(96, 64) / 8
    plain, simulated = PlainPieces(), SimulatedFp8Pieces()
    stored = simulated.stored(weight)
    for exact, near in (
        (plain.product(hidden, normed, EPS, weight), simulated.product(hidden, normed, EPS, stored)),
        (plain.gated_product(hidden, normed, EPS, weight), simulated.gated_product(hidden, normed, EPS, stored)),
        (
            plain.added_product(hidden, hidden, weight[:64]),
            simulated.added_product(hidden, hidden, Fp8Rows.of(weight[:64])),
        ),
    ):
        assert 0.003 < (near - exact).norm() / exact.norm() < 0.1


def test_it_says_that_its_answers_are_approximate(rounded: NativeEngine, native: NativeEngine) -> None:
    assert (rounded.info.quantization, native.info.quantization) == ("fp8", "none")
    assert "float32 and fp8" in rounded.info.describe()
    assert rounded.info.parameters == native.info.parameters


def test_paths_are_near_those_of_exact_layers(rounded: NativeEngine, native: NativeEngine) -> None:
    observation = drive((0, 1, 2, 6))
    exact, near = native.predict(observation, GIVEN), rounded.predict(observation, GIVEN)
    off = np.linalg.norm(near.xyz - exact.xyz, axis=-1)
    assert 0 < off.max() < PATH_TOLERANCE
    assert near.reasoning_token_ids == exact.reasoning_token_ids


def test_the_expert_is_rounded_when_asked_for(rounded: NativeEngine, native: NativeEngine, checkpoint: Path) -> None:
    engine = NativeEngine.load(str(checkpoint), device="cpu", max_cameras=4, quantization="fp8_expert")
    assert engine.info.quantization == "fp8_expert"
    observation = drive((0, 1, 2, 6))
    exact, near, nearer = (each.predict(observation, GIVEN).xyz for each in (native, engine, rounded))
    off, by_backbone = (np.linalg.norm(xyz - exact, axis=-1).max() for xyz in (near, nearer))
    assert 0 < off < 2 * PATH_TOLERANCE
    assert off != by_backbone


def test_a_tick_is_the_same_when_it_is_run_again(rounded: NativeEngine) -> None:
    first, again = (rounded.predict(drive(), SHORT) for _ in range(2))
    assert first.reasoning_token_ids == again.reasoning_token_ids
    np.testing.assert_array_equal(first.xyz, again.xyz)


@pytest.mark.parametrize("kind", ["transformers", "vllm", "null"])
def test_other_engines_refuse_it(kind: str, checkpoint: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"engine.quantization is 'fp8', but engine.kind is '{kind}'"):
        create_engine(kind, str(checkpoint), quantization="fp8")


def test_an_unknown_one_is_refused(checkpoint: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"engine.quantization is 'int4'; it has to be one of none, fp8, fp8_expert"
    ):
        create_engine("native", str(checkpoint), quantization="int4")


def test_a_gpu_without_fp8_and_other_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "an older GPU")
    for capability, dtype, said in (
        ((8, 6), torch.bfloat16, "an older GPU has compute capability 8.6"),
        ((9, 0), torch.float32, "the weights' type float32"),
    ):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, its=capability: its)
        with pytest.raises(ConfigurationError, match=said):
            fp8.check_fp8(torch.device("cuda"), dtype)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    fp8.check_fp8(torch.device("cuda"), torch.bfloat16)
