"""What can be tested of the GPU benchmark without one: the counted work, and what it says of its ticks."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from alpamayo_ros.core.types import FRAMES_PER_CAMERA
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sensors.decode import decode
from alpamayo_ros.tools import bench_gpu, make_checkpoint
from alpamayo_ros.tools.bench_gpu import arriving, measure
from alpamayo_ros.tools.gpu_cases import CASES, floors_ms, ticks
from alpamayo_ros.tools.gpu_floors import Ceilings, Work

H200 = Ceilings(flops=790e12, bytes=4.3e12)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    folder = tmp_path_factory.mktemp("full") / "full"
    assert make_checkpoint.main(["--preset", "full", "--shapes-only", "--out", str(folder)]) == 0
    return Work.of(ModelConfig.load(str(folder)))


def test_the_floors_of_the_stages_are_those_counted_by_hand(work: Work) -> None:
    assert work.vision_ms(H200, frames=4, patches=720) == pytest.approx(4.5, abs=0.1)
    assert work.prefill_ms(H200, 3086) == pytest.approx(58, abs=0.5)
    assert work.decode_ms(H200, 3100) == pytest.approx(3.64, abs=0.02)
    assert work.expert_ms(H200, 3100, samples=1, prefixes=1, steps=10) == pytest.approx(11.7, abs=0.1)
    assert work.expert_ms(H200, 3100, samples=16, prefixes=1, steps=10) == pytest.approx(83, abs=0.5)


def test_fp8_layers_have_lower_floors(work: Work) -> None:
    ceilings = Ceilings(flops=790e12, bytes=4.3e12, fp8_flops=1400e12)
    assert work.prefill_ms(ceilings, 3086, fp8=True) == pytest.approx(34, abs=1)
    assert work.decode_ms(ceilings, 3100, fp8=True) == pytest.approx(2.02, abs=0.02)
    exact, near = (floors_ms(CASES["1"], work, ceilings, quantization) for quantization in ("none", "fp8"))
    assert {stage for stage in exact if near[stage] < exact[stage]} == {"prefill", "reasoning"}
    assert floors_ms(CASES["16"], work, ceilings, "fp8_expert")["expert"] < 0.75 * work.expert_ms(H200, 3100, 16, 1, 10)


def test_a_draft_saves_the_decoding(work: Work) -> None:
    written, confirmed = floors_ms(CASES["1"], work, H200), floors_ms(CASES["draft"], work, H200)
    assert sum(written.values()) == pytest.approx(150, abs=1)
    assert written["reasoning"] - confirmed["reasoning"] == pytest.approx(21 * 3.64, abs=1)
    assert floors_ms(CASES["prepared"], work, H200)["vision"] == 0


def test_every_tick_has_one_new_frame_per_camera() -> None:
    first, second = islice(ticks(CASES["1"], first_serial=1), 2)
    for camera, frames in first.frames.items():
        assert len(frames) == FRAMES_PER_CAMERA
        assert [frame.serial for frame in frames[1:]] == [frame.serial for frame in second.frames[camera][:-1]]
    serials = [frame.serial for frames in (*first.frames.values(), *second.frames.values()) for frame in frames]
    assert len(set(serials)) == 4 * 5


def test_frames_of_two_points_come_beside_a_tick() -> None:
    first, second = islice(ticks(CASES["prepared beside"], first_serial=1), 2)
    came = [[frame.serial for frame in frames] for frames in arriving(second, CASES["prepared beside"].beside)]
    known = {frame.serial for frames in first.frames.values() for frame in frames}
    assert [len(serials) for serials in came] == [4, 4]
    assert known.isdisjoint(serial for serials in came for serial in serials)
    assert {frame.serial for frames in second.frames.values() for frame in frames[:-2]} < known
    assert {frame.serial for frames in second.frames.values() for frame in frames} - known == {*came[0], *came[1]}


def test_a_jpeg_file_is_a_picture_of_the_raw_ones_size() -> None:
    raw, file = (next(ticks(CASES[name], first_serial=1)).frames[1][0] for name in ("1", "jpeg"))
    assert file.encoding == "jpeg"
    assert 0.2e6 < len(file.data) < 0.8e6  # bytes; as camera drivers send them
    assert decode(file).shape == (raw.height, raw.width, 3)


def test_a_still_picture_confirms_the_whole_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alpamayo_ros.engine.transformers_engine import TransformersEngine

    folder = tmp_path / "tiny"
    assert make_checkpoint.main(["--preset", "tiny", "--out", str(folder)]) == 0
    monkeypatch.setattr(bench_gpu, "WARM_UP_TICKS", 1)
    for name in ("reset_peak_memory_stats", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    engine = TransformersEngine.load(str(folder), device="cpu", max_cameras=4)
    figures = measure(engine, "draft", CASES["draft"], 1, first_serial=1).figures(CASES["draft"], {"expert": 0.01})
    assert figures["drafts_accepted"] == figures["reasoning_tokens"] > 0
    assert figures["frames_encoded"] == 4
    assert figures["stages_ms"]["expert"] > 0
    assert figures["stages_of_floor"] == {"expert": round(figures["stages_ms"]["expert"] / 0.01, 2)}
