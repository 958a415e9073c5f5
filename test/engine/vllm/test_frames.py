"""Each frame is decoded and encoded once, and no frame is ever taken for another."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from inside_vllm import before_each_flow
from tiny_checkpoint import drive, picture, raw_frame

from alpamayo_ros.core.types import BadImageError, EngineError, Frame, Observation, SamplingOptions
from alpamayo_ros.engine.vllm.engine import VllmEngine

pytestmark = pytest.mark.vllm

SHORT = SamplingOptions(max_reasoning_tokens=4, seed=3)


def with_new_frame(observation: Observation) -> Observation:
    """The next tick: each camera's oldest frame is gone, and one has come."""
    frames = {
        camera: (*its[1:], raw_frame(camera, its[-1].stamp_ns + 100_000_000, picture(its[-1].serial % 1000)))
        for camera, its in observation.frames.items()
    }
    return replace(observation, frames=frames)


def test_a_frame_is_encoded_once(engine: VllmEngine) -> None:
    observation = drive()
    first = engine.predict(observation, SHORT).timings
    assert (first.frames_encoded, first.frames_reused) == (8, 0)
    for _ in range(6):
        observation = with_new_frame(observation)
        timings = engine.predict(observation, SHORT).timings
        assert (timings.frames_encoded, timings.frames_reused) == (2, 6)
    again = engine.predict(observation, replace(SHORT, num_samples=3, reasoning="independent")).timings
    assert (again.frames_encoded, again.frames_reused) == (0, 8)
    assert "decode" not in again.stages_ms


def test_prepared_frames_cost_the_tick_nothing_and_change_nothing(engine: VllmEngine) -> None:
    fresh = engine.predict(drive((0, 1, 2, 6)), SHORT)
    observation = drive((0, 1, 2, 6))  # the same pictures, under serials of their own
    for frames in observation.frames.values():
        engine.prepare(frames)
        engine.prepare(frames)
    prepared = engine.predict(observation, SHORT)
    assert (prepared.timings.frames_encoded, prepared.timings.frames_reused) == (0, 16)
    assert "decode" not in prepared.timings.stages_ms
    assert prepared.reasoning_token_ids == fresh.reasoning_token_ids
    np.testing.assert_allclose(prepared.xyz, fresh.xyz, atol=2e-3)


def test_frames_that_are_prepared_while_a_tick_runs_change_no_answer(engine: VllmEngine) -> None:
    scenes = [partial(drive, speed=speed) for speed in (3.0, 9.0)]  # each call has serials of its own
    expected = [engine.predict(scene(), SHORT) for scene in scenes]
    assert engine.prepares_alongside
    ticks = [scene() for _ in range(8) for scene in scenes]
    with ThreadPoolExecutor() as threads:
        for number, tick in enumerate(ticks):
            coming = [frame for later in ticks[number : number + 2] for four in later.frames.values() for frame in four]
            preparing = threads.submit(engine.prepare, coming)  # the tick's own too: whoever comes first encodes it
            answer = engine.predict(tick, SHORT)
            preparing.result(60)
            assert answer.reasoning_token_ids == expected[number % 2].reasoning_token_ids
            np.testing.assert_allclose(answer.xyz, expected[number % 2].xyz, atol=2e-3)
            assert number == 0 or answer.timings.frames_reused == 8


def test_frames_can_be_prepared_in_the_middle_of_a_tick(engine: VllmEngine) -> None:
    """No lock is held by the tick: what comes while its flow runs is encoded before that ends."""
    coming = drive((0, 1, 2, 6))
    frames = [frame for four in coming.frames.values() for frame in four]

    def prepare_beside(_job: object) -> None:
        preparing = threading.Thread(target=engine.prepare, args=(frames,))
        preparing.start()
        preparing.join(60)
        assert not preparing.is_alive()

    with before_each_flow(engine, prepare_beside):
        engine.predict(drive(), SHORT)
    timings = engine.predict(coming, SHORT).timings
    assert (timings.frames_encoded, timings.frames_reused) == (0, 16)
    assert not {"decode", "preprocess", "vision", "arrival"} & set(timings.stages_ms)


def test_a_tower_that_fails_at_preparing_costs_the_tick_nothing_but_the_work(
    engine: VllmEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, observation = engine.predict(drive(), SHORT), drive()
    frames = [frame for four in observation.frames.values() for frame in four]

    def fail(_patches: object) -> None:
        raise RuntimeError("no more memory")

    with monkeypatch.context() as broken:
        broken.setattr(engine._frames._vision, "encode_each", fail)
        with pytest.raises(EngineError, match="RuntimeError: no more memory"):
            engine.prepare(frames)
    answer = engine.predict(observation, SHORT)
    assert answer.timings.frames_encoded == 8
    np.testing.assert_allclose(answer.xyz, expected.xyz, atol=2e-3)


def test_other_pixels_under_an_old_stamp_are_seen(engine: VllmEngine) -> None:
    observation = drive()
    before = engine.predict(observation, SHORT)
    others = {
        camera: tuple(raw_frame(camera, frame.stamp_ns, picture(77 + i)) for i, frame in enumerate(frames))
        for camera, frames in observation.frames.items()
    }
    after = engine.predict(replace(observation, frames=others), SHORT)
    assert after.timings.frames_encoded == 8
    assert np.abs(after.xyz - before.xyz).max() > 1e-3


def test_what_is_kept_is_bounded_and_what_was_dropped_comes_back_right(engine: VllmEngine) -> None:
    observation = drive((0, 1, 2, 6))
    before = engine.predict(observation, SHORT)
    for _ in range(12):
        engine.predict(drive((0, 1, 2, 6), speed=2.0), replace(SHORT, reasoning="off"))
    assert len(engine._frames) <= 32
    after = engine.predict(observation, SHORT)
    assert after.timings.frames_encoded == 16
    assert after.reasoning_token_ids == before.reasoning_token_ids
    np.testing.assert_allclose(after.xyz, before.xyz, atol=2e-3)


def test_pictures_of_several_sizes_stand_side_by_side(engine: VllmEngine) -> None:
    observation = drive()
    larger = tuple(raw_frame(6, i, picture(i, 256, 320)) for i in range(4))
    prediction = engine.predict(replace(observation, frames={**observation.frames, 6: larger}), SHORT)
    assert np.isfinite(prediction.xyz).all()
    assert prediction.timings.frames_encoded == 8


def test_bad_images_are_named_by_predict_and_passed_over_by_prepare(engine: VllmEngine) -> None:
    observation = drive()
    broken = Frame(10_000_001, 6, 400_000_000, b"no jpeg", "jpeg")
    engine.prepare([broken])
    frames = {**observation.frames, 6: (*observation.frames[6][:3], broken)}
    with pytest.raises(BadImageError, match="camera 6"):
        engine.predict(replace(observation, frames=frames), SHORT)
    larger = raw_frame(6, 400_000_000, picture(1, 128, 160))
    frames = {**observation.frames, 6: (*observation.frames[6][:3], larger)}
    with pytest.raises(BadImageError, match="camera 6 have the sizes 160x96, 160x96, 160x96, 160x128"):
        engine.predict(replace(observation, frames=frames), SHORT)
    long = tuple(raw_frame(1, i, np.zeros((2, 600, 3), np.uint8)) for i in range(4))
    with pytest.raises(BadImageError, match="camera 1, stamp 0 ns: an image of 600x2 pixels"):
        engine.predict(replace(observation, frames={1: long}), SHORT)
    engine.predict(observation, SHORT)  # the next tick is fine


def test_it_works_from_another_thread(engine: VllmEngine) -> None:
    results: list[object] = []

    def work() -> None:
        observation = drive()
        engine.prepare(observation.frames[1])
        results.append(engine.predict(observation, SHORT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert len(results) == 1


def test_more_cameras_than_planned_are_refused(engine: VllmEngine) -> None:
    with pytest.raises(EngineError, match="has 5 cameras; from 1 to 4 can be"):
        engine.predict(drive((0, 1, 2, 3, 6)), SHORT)
