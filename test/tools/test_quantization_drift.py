"""How far FP8 answers are from exact ones is measured on equal ticks, and is little for the trained checkpoint."""

import numpy as np
import pytest
import torch

from alpamayo_ros.core.types import Array
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.tools.answer_drift import Answers, answers_of, drift
from alpamayo_ros.tools.mini_scores import held_out_ticks
from alpamayo_ros.tools.train_mini import HELD_OUT


def answers(logits: torch.Tensor, paths: Array, texts: tuple[tuple[int, ...], ...]) -> Answers:
    scores = {"min_ade_1_m": 1.0, "min_ade_6_m": 0.5, "sentence_accuracy": 1.0}
    return Answers(logits, paths, texts, texts, scores)


def test_distances_are_those_of_hand_made_answers() -> None:
    exact = answers(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), np.zeros((2, 64, 3)), ((1, 2), (3,)))
    paths = np.zeros((2, 64, 3))
    paths[1, -1] = (3.0, 4.0, 0.0)
    figures = drift(exact, answers(torch.tensor([[3.0, 4.5], [1.0, 0.0]]), paths, ((1, 2), (4,))))
    assert figures["logits_relative_error"] == pytest.approx((0.1 + 2**0.5) / 2)
    assert figures["same_likeliest_token"] == 0.5
    assert figures["path_apart_mean_m"] == pytest.approx(5 / 64 / 2)
    assert figures["path_end_apart_worst_m"] == pytest.approx(5)
    assert figures["same_reasoning"] == 0.5


def test_the_trained_checkpoint_drives_and_says_nearly_the_same() -> None:
    ticks = held_out_ticks([record_drive(HELD_OUT, 4.0 + 6.4)], every=12)
    assert len(ticks) >= 2
    measured = []
    for quantization in ("none", "fp8_expert"):
        engine = NativeEngine.load("mini", device="cpu", quantization=quantization, max_cameras=4)
        measured.append(answers_of(engine, ticks, quantization))
        engine.close()
    figures = drift(*measured)
    assert 0 < figures["logits_relative_error"] < 0.05
    assert figures["same_likeliest_token"] == 1
    assert 0 < figures["path_apart_mean_m"] < 0.2
    assert figures["same_reasoning"] == 1
