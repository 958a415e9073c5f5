"""A training in pieces, on a toy dataset."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.tools import train_mini
from alpamayo_ros.training.course import LOG_FILE, STATE_FILE, Course, Piece
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
    whole = Course(toy, tmp_path / "whole", TOY, replace(PIECE, schedule=Schedule(12, 0.1)), CPU)
    whole.run()
    out = tmp_path / "pieces"
    out.mkdir()
    (out / "drives").symlink_to(tmp_path / "whole" / "drives")  # as between pieces, drives are kept
    first = Course(toy, out, TOY, replace(PIECE, schedule=Schedule(12, 0.1)), CPU)
    first.run(most_steps=5)
    assert (first.trainer.step, first.finished) == (5, False)
    rest = Course(toy, out, TOY, replace(PIECE, resume=True), CPU)
    rest.run()
    assert rest.finished
    assert all(torch.equal(weights(rest)[name], tensor) for name, tensor in weights(whole).items())
    assert not all(torch.equal(weights(first)[name], tensor) for name, tensor in weights(whole).items())

    with pytest.raises(ConfigurationError, match="can't go on with"):
        Course(toy, out, replace(TOY, batch=3), replace(PIECE, resume=True), CPU)
    with pytest.raises(ConfigurationError, match="nothing to resume"):
        Course(toy, tmp_path / "empty", TOY, replace(PIECE, resume=True), CPU)


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
    engine = TransformersEngine.load(str(toy.folder), device="cpu")
    assert engine.info.trained
    drive = record_drive(0, TOY.drive_seconds)
    ticks = train_mini.held_out_ticks([drive], every=1)
    scores = train_mini.open_loop_scores(engine, ticks)
    engine.close()
    assert scores["ticks"] == len(ticks) == 3
    assert scores["sentence_accuracy"] == 1.0  # it has seen nothing else
    assert scores["min_ade_6_m"] <= scores["min_ade_1_m"] < scores["baselines_ade_m"]["stop"]


def test_a_training_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / STATE_FILE).touch()
    assert train_mini.main(["--out", str(tmp_path), "--device", "cpu"]) == 1
    assert "holds a training already" in capsys.readouterr().err
