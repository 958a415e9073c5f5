"""What another JPEG decoder does to answers is measured on equal ticks: nothing where its pixels are the same."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from alpamayo_ros.engine.gpu_jpegs import GpuJpegs
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.tools.jpeg_decoder_drift import main, with_jpegs
from alpamayo_ros.tools.mini_scores import held_out_ticks
from alpamayo_ros.tools.train_mini import HELD_OUT

SHORT = ["--device", "cpu", "--dtype", "float32", "--drives", "1", "--seconds", "3", "--every", "12", "--workers", "1"]


def decoding(brighter: int) -> GpuJpegs:
    """In the place of nvJPEG: OpenCV's pixels, so many levels brighter."""

    def decode(files: list[Tensor]) -> list[Tensor]:
        pictures = [cv2.cvtColor(cv2.imdecode(each.numpy(), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB) for each in files]
        return [torch.from_numpy(cv2.add(each, (brighter,) * 4).transpose(2, 0, 1).copy()) for each in pictures]

    return GpuJpegs(decode)


@pytest.mark.parametrize("brighter", [0, 3])
def test_answers_are_as_far_apart_as_pixels(brighter: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuJpegs, "on", lambda device: decoding(brighter))
    out = tmp_path / "figures.json"

    assert main([*SHORT, "--size", "320", "192", "--out", str(out)]) == 0

    figures = json.loads(out.read_text())
    assert figures["ticks"] == 2
    assert figures["pixels_apart_worst"] == brighter
    assert figures["pixels_apart_mean"] == pytest.approx(brighter, abs=0.1)  # what is white can't be brighter
    apart = (figures["logits_relative_error"], figures["path_apart_mean_m"])
    if brighter:
        assert all(0 < each < 0.2 for each in apart)
    else:
        assert apart == (0, 0)
        assert figures["same_reasoning"] == figures["same_likeliest_token"] == 1
        assert figures["opencv"] == figures["nvjpeg"]


def test_pictures_become_files_once_and_keep_their_size() -> None:
    ticks = held_out_ticks([record_drive(HELD_OUT, 8.2, image_size=(96, 160))], every=1)
    assert len(ticks) == 3
    coded = with_jpegs(ticks, 90)
    first, second = (tick.observation.frames[1] for tick in coded[:2])
    assert first[1] is second[0]
    assert cv2.imdecode(np.frombuffer(first[0].data, np.uint8), cv2.IMREAD_COLOR).shape == (96, 160, 3)
    assert [frame.serial for frame in first] == [frame.serial for frame in ticks[0].observation.frames[1]]


def test_needs_a_gpu_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(SHORT) == 1
    assert "expected a CUDA device" in capsys.readouterr().err


def test_refuses_a_quality_that_cant_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SHORT, "--quality", "0"]) == 1
    assert "--quality 0: expected 1 to 100" in capsys.readouterr().err
