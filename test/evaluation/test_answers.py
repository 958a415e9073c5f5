"""An interrupted run goes on where it was, and comes out as if it had run in one go."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drives import START_NS, circle, record, rig, write_bag
from scenes import observation

from alpamayo_ros.core.types import ConfigurationError, EngineError, Frame, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.answers import Answer, Answers
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.evaluate import Job, evaluate
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.pose_source import OdometryPoses

RUN = {"engine": "null"}


class Asked(NullEngine):
    """Counts what it is asked, and fails as it is told to, by the number of the question."""

    def __init__(self, failures: dict[int, BaseException] | None = None) -> None:
        super().__init__()
        self.asked = self.prepared = 0
        self._failures = failures or {}

    def prepare(self, frames: Sequence[Frame]) -> None:
        self.prepared += len(frames)

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        self.asked += 1
        if self.asked in self._failures:
            raise self._failures[self.asked]
        return super().predict(observation, options)


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bag(tmp_path_factory.mktemp("drive") / "drive", record(circle(8.0, 60.0), 10))


def run(bag: Path, out: Path, engine: NullEngine, seed: int = 0) -> list[str]:
    """The lines of ticks.jsonl."""
    settings = rig(sampling__seed=seed)
    with BagReader(bag) as reader:
        evaluate(Job(reader, BagInputs(reader, settings), settings, engine, pictures=1), out)
    return (out / "ticks.jsonl").read_text().splitlines()


def without_timings(lines: list[str]) -> list[str]:
    return [line.split('"timings_ms"')[0] + line.split('"metrics"')[1] for line in lines]


def test_what_was_answered_is_not_asked_again(tmp_path: Path, bag: Path) -> None:
    at_once = Asked()
    expected = run(bag, tmp_path / "at_once", at_once)
    first, second = Asked({8: KeyboardInterrupt()}), Asked()
    with pytest.raises(KeyboardInterrupt):
        run(bag, tmp_path / "out", first)
    assert not (tmp_path / "out").exists()
    lines = run(bag, tmp_path / "out", second)
    assert without_timings(lines) == without_timings(expected)
    assert second.asked == at_once.asked - 7
    assert second.prepared < at_once.prepared
    assert sorted(file.name for file in tmp_path.iterdir()) == ["at_once", "out"]


def test_a_tick_at_which_the_engine_failed_is_asked_again(tmp_path: Path, bag: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(bag, tmp_path / "out", Asked({3: EngineError("out of memory"), 8: KeyboardInterrupt()}))
    second = Asked()
    lines = run(bag, tmp_path / "out", second)
    assert not any('"engine_error"' in line for line in lines)
    assert without_timings(lines) == without_timings(run(bag, tmp_path / "at_once", Asked()))


def test_other_parameters_begin_anew(tmp_path: Path, bag: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(bag, tmp_path / "out", Asked({8: KeyboardInterrupt()}))
    at_once, second = Asked(), Asked()
    expected = run(bag, tmp_path / "at_once", at_once, seed=5)
    assert without_timings(run(bag, tmp_path / "out", second, seed=5)) == without_timings(expected)
    assert second.asked == at_once.asked


def test_poses_of_another_source_begin_anew(tmp_path: Path, bag: Path) -> None:
    settings, engine = rig(), Asked({8: KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        run(bag, tmp_path / "out", engine)

    class Elsewhere(OdometryPoses):
        description = "elsewhere"

    second = Asked()
    with BagReader(bag) as reader:
        inputs = BagInputs(reader, settings, Elsewhere(settings.odometry))
        evaluate(Job(reader, inputs, settings, second, pictures=1), tmp_path / "out")
    at_once = Asked()
    run(bag, tmp_path / "at_once", at_once)
    assert second.asked == at_once.asked


class TestFiles:
    @pytest.fixture
    def answer(self) -> Answer:
        made = NullEngine().predict(observation(), SamplingOptions(num_samples=3, seed=9))
        texts = ("Keep the lane.", "\N{SNOWMAN}", "")
        made = replace(made, reasoning=texts, reasoning_token_ids=((1, 2), (), (3,)), xyz=made.xyz.astype(np.float32))
        return Answer(17, 9, made, engine_ms=12.5, prepare_ms=0.25)

    def kept(self, folder: Path, answer: Answer) -> Answers:
        answers = Answers(folder, RUN)
        assert answers.recall(answer.t0_ns, answer.seed) is None
        answers.keep(answer)
        return Answers(folder, RUN)

    def test_an_answer_comes_back_as_it_was(self, tmp_path: Path, answer: Answer) -> None:
        again = self.kept(tmp_path / "answers", answer)
        assert again.known == 1
        assert again.knows_next
        found = again.recall(17, 9)
        assert found is not None
        assert (found.engine_ms, found.prepare_ms) == (12.5, 0.25)
        for name in ("xyz", "rotation", "actions", "speed"):
            ours, theirs = getattr(found.prediction, name), getattr(answer.prediction, name)
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours, theirs)
        for name in ("reasoning", "reasoning_token_ids", "finish_reasons", "seed", "drafts_accepted", "timings"):
            assert getattr(found.prediction, name) == getattr(answer.prediction, name)
        assert not again.knows_next

    def test_an_answer_to_another_question_is_none(self, tmp_path: Path, answer: Answer) -> None:
        assert self.kept(tmp_path / "answers", answer).recall(18, 9) is None

    def test_a_file_that_was_cut_off_is_none(self, tmp_path: Path, answer: Answer) -> None:
        again = self.kept(tmp_path / "answers", answer)
        (file,) = (tmp_path / "answers").glob("*.npz")
        file.write_bytes(file.read_bytes()[:100])
        assert again.recall(17, 9) is None

    def test_a_folder_that_is_something_else_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "answers").mkdir()
        (tmp_path / "answers" / "precious").touch()
        with pytest.raises(ConfigurationError, match="in the way"):
            Answers(tmp_path / "answers", RUN)
        assert (tmp_path / "answers" / "precious").exists()


@pytest.mark.parametrize(("max_jump", "most"), [(1.0, 19), (5.0, 64)])
def test_the_truth_ends_at_what_the_node_calls_a_jump(tmp_path: Path, max_jump: float, most: int) -> None:
    """The odometry is 3 m aside after 7 s: of a tick at 5 s or later less than 2 s is known, by the default."""
    bag = write_bag(tmp_path / "drive", record(lambda t: (8.0 * t, 3.0 * (t >= 7.0), 0.0), 14.0))
    settings = rig(max_odometry_jump=max_jump)
    with BagReader(bag) as reader:
        evaluate(Job(reader, BagInputs(reader, settings), settings, NullEngine(), pictures=1), tmp_path / "out")
    ticks = [json.loads(line) for line in (tmp_path / "out" / "ticks.jsonl").read_text().splitlines()]
    steps = [each["metrics"]["recorded_steps"] for each in ticks if 5.0 <= each["t0_ns"] * 1e-9 - START_NS * 1e-9 < 7.0]
    assert max(steps) == most
