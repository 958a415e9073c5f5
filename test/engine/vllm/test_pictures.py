"""Decoding needs no vLLM: side by side, each frame once, and nothing of a call goes on after it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from tiny_checkpoint import picture, raw_frame

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.engine.vllm import pictures
from alpamayo_ros.engine.vllm.pictures import Pictures
from alpamayo_ros.model.images import ImageConfig
from alpamayo_ros.sensors.decode import decode

CPU = torch.device("cpu")


def frames(count: int) -> list[Frame]:
    return [raw_frame(1, seed, picture(seed)) for seed in range(count)]


def test_frames_are_decoded_side_by_side_and_come_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(4)

    def decode_with_others(frame: Frame) -> object:
        together.wait(5)  # breaks unless four are at it at once
        return decode(frame)

    monkeypatch.setattr(pictures, "decode", decode_with_others)
    kept, four = Pictures(ImageConfig(), capacity=8), frames(4)
    clock = StageClock(CPU)
    for seed, found in enumerate(kept.get(four, clock)):
        np.testing.assert_array_equal(found.pixels, picture(seed))
    assert list(clock.stages_ms) == ["decode"]
    assert kept.missing(four) == []
    again = StageClock(CPU)
    kept.get(four, again)
    assert again.stages_ms == {}


def test_a_bad_frame_is_named_when_all_others_have_been_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    finished: list[int] = []

    def note(frame: Frame) -> object:
        image = decode(frame)
        finished.append(frame.serial)
        return image

    monkeypatch.setattr(pictures, "decode", note)
    kept, good = Pictures(ImageConfig(), capacity=8), frames(3)
    broken = Frame(10_000_001, 6, 0, b"no jpeg", "jpeg")
    long = raw_frame(6, 0, np.zeros((2, 600, 3), np.uint8))
    for bad in (broken, long):
        finished.clear()
        with pytest.raises(BadImageError) as caught:
            kept.get([bad, *good], StageClock(CPU))
        assert caught.value.serial == bad.serial
        assert {frame.serial for frame in good} <= set(finished)
