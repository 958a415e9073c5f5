"""JPEG files that the device decodes: which ones, and what becomes of those that it can't read."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from tiny_checkpoint import picture, raw_frame
from torch import Tensor

from alpamayo_ros.core.types import BadImageError, ConfigurationError, EngineError, Frame
from alpamayo_ros.engine.base import LoadOptions
from alpamayo_ros.engine.frame_features import FrameFeatures
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs, jpegs_by_options
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.backbone import ImageFeatures
from alpamayo_ros.model.images import ImageConfig, ImagePatches

CPU = torch.device("cpu")
UNREADABLE = 77  # pixels: what the decoder of these tests can't read is that wide


class Decoder:
    """In the place of nvJPEG: OpenCV's pixels, planar, and one brighter, so that one sees who decoded."""

    def __init__(self) -> None:
        self.calls: list[int] = []  # how many files each had

    def __call__(self, files: list[Tensor]) -> list[Tensor]:
        self.calls.append(len(files))
        pictures = [cv2.cvtColor(cv2.imdecode(each.numpy(), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB) for each in files]
        if any(each.shape[1] == UNREADABLE for each in pictures):
            raise RuntimeError("nvjpegDecode failed")
        return [torch.from_numpy(cv2.add(each, (1, 1, 1, 0)).transpose(2, 0, 1).copy()) for each in pictures]


class Tower:
    """A vision tower whose features are the image's mean."""

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        raise AssertionError("only single images are encoded")

    def encode_each(self, patches: list[ImagePatches]) -> list[ImageFeatures]:
        mean = [each.pixel_values.mean().reshape(1, 1) for each in patches]
        return [ImageFeatures(each, each[None], 1, 1) for each in mean]


def jpeg(serial: int, width: int = 320, height: int = 192, encoding: str = "jpeg", camera: int = 1) -> Frame:
    gray = np.full((height, width, 3), 40 + serial, np.uint8)
    return Frame(serial, camera, serial, bytes(cv2.imencode(".jpg", gray)[1]), encoding)


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


@pytest.fixture
def features(decoder: Decoder) -> FrameFeatures:
    return FrameFeatures(Tower(), ImageConfig(), CPU, capacity=16, jpegs=GpuJpegs(decoder))


def brightness(features: FrameFeatures, frames: list[Frame]) -> list[float]:
    """Of each frame as the tower saw it, in levels above that of OpenCV alone."""
    plain = FrameFeatures(Tower(), ImageConfig(), CPU, capacity=16)
    pairs = zip(features.get(frames, StageClock(CPU)).frames, plain.get(frames, StageClock(CPU)).frames, strict=True)
    return [127.5 * float(a.features.embeddings - b.features.embeddings) for a, b in pairs]


def test_jpegs_are_decoded_together_on_the_device_and_all_else_on_the_host(
    features: FrameFeatures, decoder: Decoder
) -> None:
    png = Frame(5, 1, 5, bytes(cv2.imencode(".png", np.full((192, 320, 3), 90, np.uint8))[1]), "png")
    mosaic = jpeg(6, encoding="bayer_rggb8; jpeg compressed bayer_rggb8")
    frames = [jpeg(1), replace(raw_frame(1, 2, picture(2)), serial=2), jpeg(3), png, mosaic]
    assert brightness(features, frames) == pytest.approx([1, 0, 1, 0, 0], abs=0.05)
    assert decoder.calls == [2]


def test_frames_come_in_the_order_asked_for_and_once(features: FrameFeatures, decoder: Decoder) -> None:
    frames = [jpeg(serial) for serial in (4, 1, 3)]
    features.prepare(frames[1:])
    stages = StageClock(CPU)
    found = features.get(frames, stages)
    assert (found.encoded, decoder.calls, (found.frames[0].height, found.frames[0].width)) == (1, [2, 1], (192, 320))
    assert [round(127.5 * float(each.features.embeddings) + 127.5) for each in found.frames] == [45, 42, 44]
    assert "decode" in stages.stages_ms


def test_what_the_device_can_not_read_the_host_decodes_and_the_others_stay(
    features: FrameFeatures, decoder: Decoder
) -> None:
    frames = [jpeg(1), jpeg(2, width=UNREADABLE), jpeg(3)]
    assert brightness(features, frames) == pytest.approx([1, 0, 1], abs=0.05)
    assert decoder.calls == [3, 1, 1, 1]


def test_a_camera_that_the_device_can_not_read_costs_the_others_one_decoding_more_and_only_once(
    decoder: Decoder,
) -> None:
    jpegs = GpuJpegs(decoder)
    for tick in (0, 10, 20):
        pictures = jpegs.decode([jpeg(tick + 1), jpeg(tick + 2, width=UNREADABLE, camera=2), jpeg(tick + 3, camera=3)])
        assert [picture is None for picture in pictures] == [False, True, False]
        levels = [int(picture.float().mean()) for picture in pictures if picture is not None]
        assert levels == [42 + tick, 44 + tick]
    assert decoder.calls == [3, 1, 1, 1, 2, 1, 2, 1]


def test_a_camera_that_the_device_can_read_again_is_decoded_with_the_others_again(decoder: Decoder) -> None:
    jpegs = GpuJpegs(decoder)
    for width in (UNREADABLE, 320, 320):
        jpegs.decode([jpeg(1), jpeg(2, width=width, camera=2)])
    assert decoder.calls == [2, 1, 1, 1, 1, 2]


def test_a_camera_that_the_device_can_not_read_is_named_once(
    features: FrameFeatures, caplog: pytest.LogCaptureFixture
) -> None:
    for serial in (1, 2, 3):
        features.prepare([jpeg(serial, width=UNREADABLE)])
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "nvJPEG can't read a frame of camera 1" in warnings[0]


def test_too_little_memory_is_no_fault_of_a_file(caplog: pytest.LogCaptureFixture) -> None:
    def decode_files(files: list[Tensor]) -> list[Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        GpuJpegs(decode_files).decode([jpeg(1), jpeg(2)])
    assert not caplog.records


@pytest.mark.parametrize("kept", [0, 1, 300])
def test_a_truncated_file_is_refused_and_never_reaches_the_device(
    features: FrameFeatures, decoder: Decoder, kept: int
) -> None:
    good, bad = jpeg(1), Frame(9, 1, 9, jpeg(9).data[:kept], "jpeg")
    with pytest.raises(BadImageError) as caught:
        features.get([good, bad], StageClock(CPU))
    assert caught.value.serial == 9
    assert decoder.calls == [1]


def test_a_size_that_the_model_can_not_take_is_refused(features: FrameFeatures) -> None:
    with pytest.raises(BadImageError, match="5x2000 pixels is too long") as caught:
        features.get([jpeg(3, width=5, height=2000)], StageClock(CPU))
    assert caught.value.serial == 3


def test_it_takes_a_cuda_device() -> None:
    assert jpegs_by_options(LoadOptions(), CPU) is None
    with pytest.raises(EngineError, match="'nvjpeg', but the device is cpu: expected a CUDA device"):
        jpegs_by_options(LoadOptions(jpeg_decoder="nvjpeg"), CPU)
    with pytest.raises(ConfigurationError, match="'turbo'; it has to be one of opencv, nvjpeg"):
        jpegs_by_options(LoadOptions(jpeg_decoder="turbo"), CPU)


def test_a_torchvision_without_its_decoders_is_an_error_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Built for another torch, its library can't be loaded; at import that is a warning."""

    def decode_jpeg(files: list[Tensor], mode: int, device: torch.device) -> list[Tensor]:
        return list(torch.ops.alpamayo_no_such_library.decode_jpegs_cuda(files, mode, device))

    stand_in = ModuleType("torchvision.io")
    vars(stand_in).update(ImageReadMode=SimpleNamespace(RGB=3), decode_jpeg=decode_jpeg)
    monkeypatch.setitem(sys.modules, "torchvision", ModuleType("torchvision"))
    monkeypatch.setitem(sys.modules, "torchvision.io", stand_in)
    with pytest.raises(EngineError, match=r"can't decode on cuda .*decode_jpegs_cuda.*; install the CUDA build"):
        GpuJpegs.on(torch.device("cuda"))
