"""The recorder keeps the last ticks within its bounds, writes them beside the driving, and never stands in its way."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoint import drive, picture, raw_frame

from alpamayo_ros.core.settings import Settings, parse_settings
from alpamayo_ros.core.types import AlpamayoError, EngineError, Observation, SamplingOptions, Skip, SkipReason
from alpamayo_ros.engine import recorder as recorder_module
from alpamayo_ros.engine.job import Outcome
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.engine.recorder import TickRecorder
from alpamayo_ros.engine.tick_file import read_ticks
from alpamayo_ros.engine.worker import Worker

OPTIONS = SamplingOptions(num_samples=2)
TIMEOUT = 20.0


def settings_for(folder: Path, **recorder: Any) -> Settings:
    named = {f"recorder.{name}": value for name, value in {"ticks": 3, "folder": str(folder), **recorder}.items()}
    return parse_settings({"cameras.front_wide.topic": "/front", "engine.kind": "null", **named})


def ticks(count: int) -> list[Observation]:
    """One after the other: each has one new frame of a camera."""
    frames = [raw_frame(1, 100_000_000 * (i + 1), picture(i)) for i in range(count + 3)]
    base = drive(cameras=(1,))
    return [
        replace(
            base,
            t0_ns=frames[i + 3].stamp_ns,
            frames={1: tuple(frames[i : i + 4])},
            pose=replace(base.pose, stamp_ns=frames[i + 3].stamp_ns),
        )
        for i in range(count)
    ]


def run(recorder: TickRecorder, observations: list[Observation]) -> None:
    for observation in observations:
        recorder.engine.predict(observation, OPTIONS)


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ticks.zip"))


def wait_for_files(folder: Path, count: int) -> list[Path]:
    deadline = time.monotonic() + TIMEOUT
    while len(found := files(folder)) < count:
        assert time.monotonic() < deadline, f"waited for {count} files, there are {found}"
        time.sleep(0.01)
    return found


def skip(reason: SkipReason) -> Skip:
    return Skip(reason, 0, {reason.value: {}})


@pytest.mark.parametrize("given", ["tiny", "~/tiny"])
def test_the_checkpoints_folder_is_written_so_that_it_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "tiny").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = {"engine.checkpoint": given, "engine.base_model": "somebody/a-model"}
    recorder = TickRecorder(settings_for(tmp_path).with_values(names), NullEngine())
    run(recorder, ticks(1))
    written = read_ticks(recorder.save().result(TIMEOUT)).settings
    assert written["engine.checkpoint"] == str(tmp_path / "tiny")
    assert written["engine.base_model"] == "somebody/a-model"


def test_the_last_ticks_are_saved_when_asked_for(tmp_path: Path) -> None:
    recorder = TickRecorder(settings_for(tmp_path / "new" / "folder"), NullEngine())
    observations = ticks(5)
    run(recorder, observations)
    path = recorder.save().result(TIMEOUT)
    assert path == tmp_path / "new" / "folder" / f"{observations[-1].t0_ns}_service.ticks.zip"
    got = read_ticks(path)
    assert [each.observation.t0_ns for each in got.ticks] == [each.t0_ns for each in observations[-3:]]
    assert all(each.finished and each.prediction is not None and each.options == OPTIONS for each in got.ticks)
    assert parse_settings(got.settings) == settings_for(tmp_path / "new" / "folder")
    assert os.listdir(path.parent) == [path.name]


def test_a_second_file_of_the_same_tick_gets_another_name(tmp_path: Path) -> None:
    recorder = TickRecorder(settings_for(tmp_path), NullEngine())
    run(recorder, ticks(1))
    assert recorder.save().result(TIMEOUT) != recorder.save().result(TIMEOUT)
    assert len(files(tmp_path)) == 2


def test_images_take_no_more_memory_than_allowed(tmp_path: Path) -> None:
    frame_bytes = 96 * 160 * 3
    recorder = TickRecorder(settings_for(tmp_path, ticks=100, memory_mb=1), NullEngine())
    run(recorder, ticks(60))
    got = read_ticks(recorder.save().result(TIMEOUT))
    serials = {frame.serial for tick in got.ticks for frame in tick.observation.frames[1]}
    assert len(serials) == int(1e6 / frame_bytes)
    assert len(got.ticks) == len(serials) - 3


def test_without_ticks_to_keep_the_engine_is_left_alone(tmp_path: Path) -> None:
    engine = NullEngine()
    recorder = TickRecorder(settings_for(tmp_path, ticks=0), engine)
    assert recorder.engine is engine
    recorder.on_skip(skip(SkipReason.ENGINE_ERROR))
    with pytest.raises(AlpamayoError, match=r"recorder\.ticks is 0"):
        recorder.save().result(TIMEOUT)
    assert not files(tmp_path)


def test_before_the_first_tick_there_is_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(AlpamayoError, match="no tick yet"):
        TickRecorder(settings_for(tmp_path), NullEngine()).save().result(TIMEOUT)


def test_the_engine_behaves_as_without_a_recorder(tmp_path: Path) -> None:
    engine = NullEngine()
    recorded = TickRecorder(settings_for(tmp_path), engine).engine
    observation = drive()
    assert recorded.info is engine.info
    assert np.array_equal(recorded.predict(observation, OPTIONS).xyz, engine.predict(observation, OPTIONS).xyz)
    assert len(recorded.predict_batch([observation] * 2, [OPTIONS] * 2)) == 2
    assert recorded.ask(observation, "What?", OPTIONS) == engine.ask(observation, "What?", OPTIONS)
    recorded.warm_up()
    recorded.prepare(observation.frames[1])
    recorded.close()


class TestFailures:
    def test_an_engine_that_raises_is_saved_with_its_error(self, tmp_path: Path) -> None:
        outcomes = self.drive_worker(tmp_path, NullEngine(before=self.fail_at(3)), count=3)
        assert [outcome.skip.reason if outcome.skip else None for outcome in outcomes] == [None, None, "engine_error"]
        got = read_ticks(wait_for_files(tmp_path, 1)[0])
        assert got.why == "engine_error"
        assert [each.error for each in got.ticks] == ["", "", "EngineError: out of memory"]
        assert got.ticks[-1].finished

    def test_an_unfit_answer_is_saved_with_the_answer(self, tmp_path: Path) -> None:
        class Blind(NullEngine):
            def predict(self, observation: Observation, options: SamplingOptions) -> Any:
                good = super().predict(observation, options)
                return replace(good, xyz=np.full_like(good.xyz, np.nan))

        self.drive_worker(tmp_path, Blind(), count=1)
        got = read_ticks(wait_for_files(tmp_path, 1)[0])
        assert got.why == "bad_output"
        assert got.ticks[-1].prediction is not None
        assert np.isnan(got.ticks[-1].prediction.xyz).all()

    def test_an_answer_that_is_none_is_saved_as_that(self, tmp_path: Path) -> None:
        class Silent(NullEngine):
            def predict(self, observation: Observation, options: SamplingOptions) -> Any:
                return None

        outcomes = self.drive_worker(tmp_path, Silent(), count=1)
        assert outcomes[0].skip is not None
        assert outcomes[0].skip.reason is SkipReason.BAD_OUTPUT
        got = read_ticks(wait_for_files(tmp_path, 1)[0])
        assert got.ticks[0].error == "the answer is a NoneType, expected Prediction"

    def test_drafts_are_recorded_as_the_engine_got_them(self, tmp_path: Path) -> None:
        class Writing(NullEngine):
            def predict(self, observation: Observation, options: SamplingOptions) -> Any:
                return replace(super().predict(observation, options), reasoning_token_ids=((7, 8), (7, 8)))

        recorder = TickRecorder(settings_for(tmp_path), Writing())
        self.run_worker(recorder, ticks(2))
        got = read_ticks(recorder.save().result(TIMEOUT))
        assert [each.options.draft_token_ids for each in got.ticks] == [(), (7, 8)]

    @pytest.mark.parametrize(
        "reason", [r for r in SkipReason if r not in (SkipReason.ENGINE_ERROR, SkipReason.BAD_OUTPUT)]
    )
    def test_other_skips_save_nothing(self, tmp_path: Path, reason: SkipReason) -> None:
        recorder = TickRecorder(settings_for(tmp_path), NullEngine())
        run(recorder, ticks(1))
        recorder.on_skip(skip(reason))
        recorder.close()
        assert not files(tmp_path)

    def test_when_every_tick_fails_there_is_a_file_per_full_set(self, tmp_path: Path) -> None:
        recorder = TickRecorder(settings_for(tmp_path, ticks=4), NullEngine())
        for number, observation in enumerate(ticks(12)):
            run(recorder, [observation])
            recorder.on_skip(skip(SkipReason.ENGINE_ERROR))
            wait_for_files(tmp_path, number // 4 + 1)
        assert len(files(tmp_path)) == 3

    def test_a_full_folder_gets_no_more_files_unless_asked_for(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        recorder = TickRecorder(settings_for(tmp_path, max_files=1, ticks=1), NullEngine())
        run(recorder, ticks(1))
        recorder.save().result(TIMEOUT)
        with caplog.at_level(logging.WARNING):
            recorder.on_skip(skip(SkipReason.ENGINE_ERROR))
            recorder.close()
        assert "holds 1 files, and recorder.max_files is 1" in caplog.text
        assert len(files(tmp_path)) == 1
        run(recorder, ticks(1))
        recorder.save().result(TIMEOUT)
        assert len(files(tmp_path)) == 2

    @staticmethod
    def fail_at(number: int) -> Any:
        calls = []

        def before(_: Observation) -> None:
            calls.append(1)
            if len(calls) == number:
                raise EngineError("out of memory")

        return before

    @staticmethod
    def run_worker(recorder: TickRecorder, observations: list[Observation]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        arrived = threading.Semaphore(0)

        def deliver(outcome: Outcome) -> None:
            if outcome.skip is not None:
                recorder.on_skip(outcome.skip)
            outcomes.append(outcome)
            arrived.release()

        worker = Worker(recorder.engine, deliver, now_ns=lambda: 0)
        for observation in observations:
            worker.submit(observation, OPTIONS)
            assert arrived.acquire(timeout=TIMEOUT)
        assert worker.stop(TIMEOUT)
        return outcomes

    def drive_worker(self, folder: Path, engine: NullEngine, count: int) -> list[Outcome]:
        return self.run_worker(TickRecorder(settings_for(folder), engine), ticks(count))


class TestTheDisk:
    def test_a_folder_that_cannot_be_made_is_a_warning(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "file").write_text("")
        recorder = TickRecorder(settings_for(tmp_path / "file" / "folder"), NullEngine())
        run(recorder, ticks(1))
        with caplog.at_level(logging.WARNING), pytest.raises(OSError, match="Not a directory"):
            recorder.save().result(TIMEOUT)
        assert "1 ticks could not be saved" in caplog.text
        run(recorder, ticks(1))

    def test_a_full_disk_is_a_warning_and_leaves_nothing_behind(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The limit of a process on the size of its files stands for the disk: both end a write in the middle."""
        import resource
        import signal

        recorder = TickRecorder(settings_for(tmp_path), NullEngine())
        run(recorder, ticks(3))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
            with caplog.at_level(logging.WARNING), pytest.raises(OSError, match="File too large"):
                recorder.save().result(TIMEOUT)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, handler)
        assert "3 ticks could not be saved" in caplog.text
        assert not os.listdir(tmp_path)
        assert recorder.save().result(TIMEOUT).exists()

    def test_while_it_writes_ticks_go_on_and_another_file_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on = threading.Event(), threading.Event()
        write = recorder_module.write_ticks

        def slow(path: Path, content: Any) -> None:
            begun.set()
            assert go_on.wait(TIMEOUT)
            write(path, content)

        monkeypatch.setattr(recorder_module, "write_ticks", slow)
        recorder = TickRecorder(settings_for(tmp_path), NullEngine())
        run(recorder, ticks(3))
        first = recorder.save()
        assert begun.wait(TIMEOUT)
        run(recorder, ticks(3))
        with pytest.raises(AlpamayoError, match="still being written"):
            recorder.save().result(TIMEOUT)
        go_on.set()
        assert len(read_ticks(first.result(TIMEOUT)).ticks) == 3

    def test_an_engine_that_hangs_can_be_looked_at(self, tmp_path: Path) -> None:
        inside, go_on = threading.Event(), threading.Event()

        def hang(_: Observation) -> None:
            inside.set()
            assert go_on.wait(TIMEOUT)

        recorder = TickRecorder(settings_for(tmp_path), NullEngine(before=hang))
        caller = threading.Thread(target=run, args=(recorder, ticks(1)))
        caller.start()
        assert inside.wait(TIMEOUT)
        got = read_ticks(recorder.save().result(TIMEOUT))
        recorder.close()  # while the engine is at it: its end must not fail
        go_on.set()
        caller.join(TIMEOUT)
        assert [(each.finished, each.prediction) for each in got.ticks] == [(False, None)]

    def test_an_answer_that_cannot_be_stored_is_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Odd(NullEngine):
            def predict(self, observation: Observation, options: SamplingOptions) -> Any:
                return replace(super().predict(observation, options), reasoning=(object(),))

        recorder = TickRecorder(settings_for(tmp_path), Odd())
        run(recorder, ticks(1))
        with caplog.at_level(logging.WARNING), pytest.raises(TypeError):
            recorder.save().result(TIMEOUT)
        assert "could not be saved" in caplog.text
        assert not os.listdir(tmp_path)


def test_keeping_a_tick_costs_microseconds(tmp_path: Path) -> None:
    recorder = TickRecorder(settings_for(tmp_path, ticks=50), NullEngine())
    observations = ticks(200)
    prediction = NullEngine().predict(observations[0], OPTIONS)
    best = float("inf")
    for observation in observations:
        began = time.perf_counter()
        recorder.begin(observation, OPTIONS)
        recorder.end(1.0, prediction)
        best = min(best, time.perf_counter() - began)
    assert best < 1e-3
