"""A training in pieces, on a toy dataset."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.repository import SHIPPED
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED
from alpamayo_ros.tools import train_mini
from alpamayo_ros.tools.mini_learner import learner_policy
from alpamayo_ros.training.course import LOG_FILE, STATE_FILE, Course, Piece
from alpamayo_ros.training.emphasis import Emphasis
from alpamayo_ros.training.examples import examples_of
from alpamayo_ros.training.recording import DriveRecorder, Learner
from alpamayo_ros.training.settings import PACE_STEPS, Schedule, TrainingSettings

CPU = torch.device("cpu")
TOY = TrainingSettings(
    batch=2,
    flow_samples=1,
    peak_rate=3e-3,
    warm_up=PACE_STEPS,
    drives=2,
    first_drives=1,
    drive_seconds=1.8,
    average=0.5,
)
PIECE = Piece(minutes=2, total_minutes=2, workers=1)


def weights(course: Course) -> dict[str, torch.Tensor]:
    return course.trainer.averaged() | course.trainer.trained.state_dict()


def test_a_resumed_training_ends_with_the_weights_of_an_uninterrupted_one(toy: ModelConfig, tmp_path: Path) -> None:
    settings = replace(TOY, other_sentences=0.5, other_routes=0.5, emphasis=Emphasis(cars=3.0, roads=2.0))
    whole = Course(toy, tmp_path / "whole", settings, replace(PIECE, schedule=Schedule(12, 0.1)), CPU)
    whole.run()
    out = tmp_path / "pieces"
    out.mkdir()
    (out / "drives").symlink_to(tmp_path / "whole" / "drives")  # as between pieces, drives are kept
    first = Course(toy, out, settings, replace(PIECE, schedule=Schedule(12, 0.1)), CPU)
    first.run(most_steps=5)
    assert (first.trainer.step, first.finished) == (5, False)
    rest = Course(toy, out, settings, replace(PIECE, resume=True), CPU)
    rest.run()
    assert rest.finished
    assert all(torch.equal(weights(rest)[name], tensor) for name, tensor in weights(whole).items())
    assert not all(torch.equal(weights(first)[name], tensor) for name, tensor in weights(whole).items())

    with pytest.raises(ConfigurationError, match="can't go on with"):
        Course(toy, out, replace(settings, batch=3), replace(PIECE, resume=True), CPU)
    learner = Learner(SHIPPED / "mini", every=3, policy=learner_policy)
    with pytest.raises(ConfigurationError, match="was trained with the learner None; it can't go on with"):
        Course(toy, out, settings, replace(PIECE, resume=True, learner=learner), CPU)
    with pytest.raises(ConfigurationError, match="nothing to resume"):
        Course(toy, tmp_path / "empty", settings, replace(PIECE, resume=True), CPU)


def test_a_step_is_compiled_once_before_there_are_drives_and_is_the_same(
    toy: ModelConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_, schedule = torch.compile, Schedule(3, 0.0)
    plain = Course(toy, tmp_path, TOY, replace(PIECE, schedule=schedule), CPU)
    plain.run()
    monkeypatch.setattr(torch, "compile", lambda module, **options: compile_(module, backend="eager", **options))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = Course(toy, tmp_path, TOY, replace(PIECE, schedule=schedule, compiled=True), CPU)
    compiled._compile()
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs == 1
    compiled.run()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == graphs
    assert all(torch.equal(weights(compiled)[name], tensor) for name, tensor in weights(plain).items())


def test_nothing_is_trained_on_worlds_that_are_held_out() -> None:
    TrainingSettings(first_seed=FIRST_HELD_OUT_SEED - 4000, drives=4000)
    with pytest.raises(ConfigurationError, match="worlds from 1000000 on are held out"):
        TrainingSettings(first_seed=FIRST_HELD_OUT_SEED - 3999, drives=4000)


def test_drives_join_and_the_rate_falls_by_the_step_alone() -> None:
    settings = TrainingSettings(drives=50, first_drives=10, warm_up=200, peak_rate=1.0)
    schedule = Schedule(steps=1000, drives_per_step=0.1)
    assert [schedule.drives_at(step, settings) for step in (0, PACE_STEPS, PACE_STEPS + 100, 999)] == [10, 10, 20, 50]
    rates = [schedule.learning_rate(step, settings) for step in (0, 199, 600, 999)]
    assert rates == pytest.approx([0.005, 1.0, 0.5, 0.0], abs=0.01)


def test_the_losses_fall_and_the_engine_runs_what_is_written(toy: ModelConfig, tmp_path: Path) -> None:
    settings = replace(TOY, drives=1, peak_rate=0.006, warm_up=10, flow_samples=8)
    course = Course(toy, tmp_path, settings, replace(PIECE, schedule=Schedule(100, 0.0)), CPU)
    course.run()
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert lines[0]["reasoning"] > 40  # every token is as likely as any other: some 10 of them, of 6.5 nats
    assert lines[-1]["reasoning"] < 5
    assert lines[-1]["path"] < 0.3 * lines[0]["path"]
    assert lines[-1]["flow"] < 0.8 * lines[0]["flow"]

    train_mini.write_checkpoint(toy.folder, course.trainer)
    further = replace(PIECE, schedule=Schedule(1, 0.0), begin_from=toy.folder)
    after = Course(toy, tmp_path / "further", replace(settings, peak_rate=0.0), further, CPU).trainer.averaged()
    kept = course.trainer.averaged()
    assert all(torch.equal(tensor, kept[name].bfloat16().float()) for name, tensor in after.items())

    engine = TransformersEngine.load(str(toy.folder), device="cpu")
    assert engine.info.trained
    drive = record_drive(0, TOY.drive_seconds + 6.4)
    ticks = train_mini.held_out_ticks([drive], every=1)
    scores = train_mini.open_loop_scores(engine, ticks)
    engine.close()
    assert scores["ticks"] == len(ticks) == 3
    assert scores["sentence_accuracy"] == 1.0  # it has seen nothing else
    for errors in (scores, scores["driven"]):
        assert errors["min_ade_6_m"] <= errors["min_ade_1_m"] < errors["baselines_ade_m"]["stop"]
    assert scores["driven"]["plan_ade_m"] < 0.15  # nobody is ahead, and nothing changes


def test_a_training_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / STATE_FILE).touch()
    assert train_mini.main(["--out", str(tmp_path), "--device", "cpu"]) == 1
    assert "holds a training already" in capsys.readouterr().err


def test_a_store_keeps_the_newest_drives(toy: ModelConfig, tmp_path: Path) -> None:
    settings = replace(TOY, drives=4, kept_drives=2)
    course = Course(toy, tmp_path, settings, replace(PIECE, schedule=Schedule(126, 0.5)), CPU)
    store = course._store
    drives = [examples_of(record_drive(seed, TOY.drive_seconds), toy) for seed in range(3)]
    store.add(drives[:2])
    assert (store.drives, len(store)) == (2, 6)
    store.add(drives[2:])
    assert (store.drives, len(store)) == (3, 6)
    everything = store.batch(torch.arange(6), torch.ones(6, dtype=torch.bool))
    expected = torch.from_numpy(np.concatenate([drives[2].actions, drives[1].actions]))
    assert torch.equal(everything.actions, expected)
    newest = torch.from_numpy(drives[2].images[-1])  # [cameras, H, W, 3]
    assert torch.equal(everything.images.unflatten(0, (6, 4, 4))[2, :, -1].permute(0, 2, 3, 1), newest)
    with pytest.raises(ConfigurationError, match="a drive of 20 frames; the first one has 18"):
        store.add([examples_of(record_drive(0, 2.0), toy)])


def test_a_store_draws_only_what_it_has(toy: ModelConfig, tmp_path: Path) -> None:
    """As when a training is resumed behind the drives that are kept, until all of them are there again."""
    settings = replace(TOY, drives=5, kept_drives=3)
    store = Course(toy, tmp_path, settings, replace(PIECE, schedule=Schedule(126, 0.5)), CPU)._store
    store.skip(2)
    first, second = (examples_of(record_drive(seed, TOY.drive_seconds), toy) for seed in range(2))
    for drives in ([first], [first, second]):
        store.add(drives[-1:])
        assert len(store) == len(drives) * len(first)
        there = torch.from_numpy(np.concatenate([drive.actions for drive in drives]))
        drawn = store.draw(replace(settings, batch=50), torch.Generator().manual_seed(0)).actions
        assert all(any(torch.equal(one, each) for each in there) for one in drawn)
        assert all(any(torch.equal(one, each) for one in drawn) for each in there)


def test_the_rate_goes_on_where_the_training_that_made_the_weights_ended() -> None:
    settings = TrainingSettings(warm_up=100, peak_rate=1.0)
    whole, second = Schedule(steps=1000, drives_per_step=0.0), Schedule(steps=600, drives_per_step=0.0, before=400)
    assert second.learning_rate(200, settings) == pytest.approx(whole.learning_rate(600, settings))
    assert second.learning_rate(0, settings) == pytest.approx(whole.learning_rate(400, settings) / 100)
    assert second.learning_rate(599, settings) < 1e-4


def test_a_plan_counts_on_drives_as_they_are_recorded_and_on_no_more_than_is_told(
    toy: ModelConfig, tmp_path: Path
) -> None:
    def planned(pace: float, most: float | None) -> float:
        piece = replace(PIECE, minutes=10, total_minutes=10, drives_per_step=most)
        recorder = cast(DriveRecorder, SimpleNamespace(ready=40, recorded=0, pace=pace))
        return Course(toy, tmp_path, replace(TOY, drives=4000), piece, CPU)._planned(0.1, recorder).drives_per_step

    assert planned(pace=0.0, most=None) == pytest.approx(39 / (0.85 * 5664), rel=0.01)  # what lay there
    assert planned(pace=2.0, most=None) == pytest.approx((39 + 1.8 * 0.85 * 590) / (0.85 * 5664), rel=0.01)
    assert planned(pace=2.0, most=0.05) == 0.05
