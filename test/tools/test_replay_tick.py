"""A recorded tick run again: the same is said to be the same, and what differs is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoint import drive, write_tiny_checkpoint

from alpamayo_ros.core.settings import parse_settings
from alpamayo_ros.core.types import EngineError, Observation, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.engine.recorder import TickRecorder
from alpamayo_ros.engine.tick_file import read_ticks, write_ticks
from alpamayo_ros.tools import replay_tick

OPTIONS = SamplingOptions(num_samples=2, seed=11, max_reasoning_tokens=6)
CAMERAS = {"cameras.front_wide.topic": "/front", "cameras.front_tele.topic": "/tele"}


def record(folder: Path, engine: Engine, count: int = 1, **parameters: Any) -> Path:
    """A file as the node writes it."""
    named = {name.replace("__", "."): value for name, value in parameters.items()}
    given = {**CAMERAS, "engine.kind": "null", "recorder.ticks": 5, "recorder.folder": str(folder), **named}
    recorder = TickRecorder(parse_settings(given), engine)
    for number in range(count):
        try:
            recorder.engine.predict(drive(speed=8.0 + number), OPTIONS)
        except EngineError:
            continue
    return recorder.save().result(20)


def changed(path: Path, **changes: Any) -> Path:
    """The same file with another answer."""
    content = read_ticks(path)
    prediction = content.ticks[-1].prediction
    assert prediction is not None
    other = replace(content.ticks[-1], prediction=replace(prediction, **changes))
    write_ticks(path.with_name("changed.ticks.zip"), replace(content, ticks=(*content.ticks[:-1], other)))
    return path.with_name("changed.ticks.zip")


class TestTheNullEngine:
    def test_the_same_answer(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert replay_tick.main([str(record(tmp_path, NullEngine()))]) == 0
        printed = capsys.readouterr().out
        assert "xyz        at most 0.000000 m apart" in printed
        assert "the same" in printed

    def test_another_trajectory(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = record(tmp_path, NullEngine())
        prediction = read_ticks(path).ticks[-1].prediction
        assert prediction is not None
        moved = prediction.xyz.copy()
        moved[1, 9, 1] += 0.25
        other = changed(path, xyz=moved)
        assert replay_tick.main([str(other)]) == 1
        printed = capsys.readouterr().out
        assert "xyz        at most 0.250000 m apart, in sample 1 at t0 + 1.0 s (tolerance 0.01 m)" in printed
        assert "DIFFERENT" in printed
        assert replay_tick.main([str(other), "--tolerance", "0.3"]) == 0

    def test_other_tokens(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        other = changed(
            record(tmp_path, NullEngine()), reasoning_token_ids=((), (4,)), reasoning=("Keep the speed.", "Stop.")
        )
        assert replay_tick.main([str(other)]) == 1
        expected = "tokens     of sample 1 differ from token 0 on: 'Keep the speed.', recorded 'Stop.'"
        assert expected in capsys.readouterr().out

    def test_an_answer_that_was_not_finite_and_is_now(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        other = changed(record(tmp_path, NullEngine()), xyz=np.full((2, 64, 3), np.nan))
        assert replay_tick.main([str(other)]) == 1
        printed = capsys.readouterr().out
        assert "at most inf m apart" in printed
        assert "recorded   bad_output: fault=xyz is not finite" in printed

    def test_another_number_of_samples(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        other = changed(record(tmp_path, NullEngine()), xyz=np.zeros((1, 64, 3)))
        assert replay_tick.main([str(other)]) == 1
        assert "xyz        shape [2, 64, 3], recorded [1, 64, 3]" in capsys.readouterr().out

    def test_which_ticks(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = record(tmp_path, NullEngine(), count=3)
        assert replay_tick.main([str(path), "--all"]) == 0
        assert capsys.readouterr().out.count("\n  the same\n") == 3
        for number, shown in (("0", "\ntick 0, "), ("-2", "\ntick 1, ")):
            assert replay_tick.main([str(path), "--tick", number]) == 0
            assert shown in capsys.readouterr().out
        assert replay_tick.main([str(path), "--tick", "3"]) == 2
        assert "--tick is 3" in capsys.readouterr().err

    def test_a_list_without_an_engine(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = record(tmp_path, NullEngine(), count=2, engine__kind="transformers", engine__checkpoint="/nowhere")
        assert replay_tick.main([str(path), "--list"]) == 0
        printed = capsys.readouterr().out
        assert "tick 1   t0 400000000 ns, cameras 1, 6: 2 samples after" in printed


class TestErrors:
    @pytest.fixture
    def failed(self, tmp_path: Path) -> Path:
        def fail(_: Observation) -> None:
            raise EngineError("out of memory")

        return record(tmp_path, NullEngine(before=fail))

    def test_an_error_that_is_gone(self, failed: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert replay_tick.main([str(failed)]) == 1
        printed = capsys.readouterr().out
        assert "recorded   EngineError: out of memory after" in printed
        assert "now        2 samples after" in printed

    def test_an_error_that_comes_again(
        self, failed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Observation) -> None:
            raise EngineError("out of memory")

        monkeypatch.setattr(replay_tick, "engine_by_settings", lambda _: NullEngine(before=fail))
        assert replay_tick.main([str(failed)]) == 0
        assert capsys.readouterr().out.count("EngineError: out of memory after") == 3

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--engine", "transformers"], "engine.checkpoint is empty"),
            (["-p", "engine.dtype:=int3"], "engine.dtype is 'int3': it must be one of"),
        ],
    )
    def test_an_engine_that_cannot_be_made(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
    ) -> None:
        assert replay_tick.main([str(record(tmp_path, NullEngine())), *options]) == 2
        assert words in capsys.readouterr().err

    def test_a_file_that_is_none(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "text").write_text("no zip")
        assert replay_tick.main([str(tmp_path / "text")]) == 2
        assert "error: " in capsys.readouterr().err


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("checkpoints")
    return write_tiny_checkpoint(folder / "a", seed=0), write_tiny_checkpoint(folder / "b", seed=1)


@pytest.fixture(scope="module")
def recorded(checkpoints: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    engine = create_engine("transformers", str(checkpoints[0]), device="cpu", max_cameras=2)
    named = {"engine__kind": "transformers", "engine__checkpoint": str(checkpoints[0]), "engine__device": "cpu"}
    return record(tmp_path_factory.mktemp("ticks"), engine, **named)


class TestTheModel:
    def test_the_same_checkpoint_gives_the_same_tokens_and_path(
        self, recorded: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert replay_tick.main([str(recorded), "--tolerance", "1e-4"]) == 0
        printed = capsys.readouterr().out
        tick = read_ticks(recorded).ticks[0]
        assert tick.prediction is not None
        tokens = sum(map(len, tick.prediction.reasoning_token_ids))
        assert tokens > 10
        assert f"tokens     the same, {tokens} in 2 samples" in printed
        assert "note" not in printed

    def test_another_checkpoint_is_noted_and_differs(
        self, recorded: Path, checkpoints: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert replay_tick.main([str(recorded), "--checkpoint", str(checkpoints[1])]) == 1
        assert "DIFFERENT" in capsys.readouterr().out
