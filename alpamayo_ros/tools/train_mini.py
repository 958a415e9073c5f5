"""Train the small checkpoint from the synthetic world alone, in pieces, and score it on drives it hasn't seen.

    python -m alpamayo_ros.tools.train_mini --out out/mini --minutes 8
    python -m alpamayo_ros.tools.train_mini --out out/mini --minutes 8 --resume

It takes as many steps as fit into the first piece, unless --steps says how many; the log says what it was, so that
the same numbers give the same training again, where the drives are the same: those that lie in --drives-dir are used as
they are. OUT/checkpoint is what an engine loads, OUT/scores.json what it reaches.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from alpamayo_ros.core.types import HORIZON, ConfigurationError
from alpamayo_ros.engine.device import resolve_device
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.progress import progress
from alpamayo_ros.sim.driver import CRUISE
from alpamayo_ros.sim.recorded_drive import IMAGE_SIZE, PERIOD_S, RecordedDrive, record_drive
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED, SHORTEST, World
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.make_checkpoint import write_descriptions, write_json, write_shards
from alpamayo_ros.tools.mini_branches import BranchCase, branch_cases, branch_scores
from alpamayo_ros.tools.mini_card import model_card
from alpamayo_ros.tools.mini_learner import learner_policy
from alpamayo_ros.tools.mini_scores import held_out_ticks, open_loop_scores
from alpamayo_ros.tools.worker_processes import worker_processes
from alpamayo_ros.training.course import STATE_FILE, Course, Piece
from alpamayo_ros.training.emphasis import Emphasis
from alpamayo_ros.training.recording import Learner
from alpamayo_ros.training.settings import Schedule, TrainingSettings
from alpamayo_ros.training.trainer import Trainer

HELD_OUT = FIRST_HELD_OUT_SEED  # the first seed of the drives for scoring
SCORED_SECONDS = 20.0  # of each of those drives
SCORED_EVERY = 10  # ticks


def write_checkpoint(folder: Path, trainer: Trainer) -> None:
    """Write the averaged weights of a training in bfloat16 beside the descriptions that lie in a folder."""
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in trainer.averaged().items()}
    write_shards(folder, [list(weights)], iter(weights.items()))


def record_held_out(
    count: int, seconds: float, workers: int, image_size: tuple[int, int] = IMAGE_SIZE
) -> list[RecordedDrive]:
    """Drives of seeds that training doesn't have, recorded in processes of their own.

    They go on for 6.4 s after `seconds`, so that all of their first `seconds` can be scored.

    Args:
        count: of the drives.
        seconds: of each.
        workers: processes.
        image_size: height and width, pixels.
    """
    whole = seconds + HORIZON * PERIOD_S
    with worker_processes(workers) as pool:
        drives = [pool.submit(record_drive, HELD_OUT + number, whole, image_size=image_size) for number in range(count)]
        return [drive.result() for drive in progress(drives, unit=" drives", desc="held-out drives")]


def _held_out_branches(drives: Sequence[RecordedDrive]) -> list[BranchCase]:
    length = max(SCORED_SECONDS * CRUISE, SHORTEST)  # as record_drive has it for these seconds
    worlds = [World.random(HELD_OUT + number, length) for number in range(len(drives))]
    scored = [drive.first(round(SCORED_SECONDS / PERIOD_S)) for drive in drives]
    return [case for world, drive in zip(worlds, scored, strict=True) for case in branch_cases(world, drive)]


def score(checkpoint: Path, device: str, drives: list[RecordedDrive]) -> dict[str, Any]:
    """What a checkpoint reaches on held-out drives; also written into its model card."""
    engine = TransformersEngine.load(str(checkpoint), device=device)
    try:
        scores = open_loop_scores(engine, held_out_ticks(drives, SCORED_EVERY))
        scores["junctions"] = branch_scores(engine, _held_out_branches(drives))
    finally:
        engine.close()
    (checkpoint / "README.md").write_text(model_card(scores))
    return scores


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    defaults = TrainingSettings()
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.train_mini",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder for everything")
    parser.add_argument("--minutes", type=float, default=8.0, help="of this piece at most (default: %(default)g)")
    parser.add_argument("--of", type=float, metavar="MINUTES", help="of all pieces together (default: --minutes)")
    parser.add_argument("--resume", action="store_true", help="go on with what lies in --out")
    parser.add_argument("--begin-from", type=Path, metavar="DIR", help="a new training with that checkpoint's weights")
    parser.add_argument(
        "--learner-every",
        type=int,
        default=0,
        metavar="N",
        help="with --begin-from: that drives every Nth drive itself",
    )
    parser.add_argument("--steps", type=int, default=0, help="of the whole training (default: what fits in --minutes)")
    parser.add_argument(
        "--drives-per-step",
        type=float,
        metavar="N",
        help="the pace at which drives join; without --steps at most (default: as they are recorded)",
    )
    parser.add_argument(
        "--steps-before", type=int, default=0, metavar="N", help="with --begin-from: of the training that made it"
    )
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of weights, batches and noise")
    parser.add_argument("--batch", type=int, default=defaults.batch, help="ticks a step (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=defaults.peak_rate, help="learning rate (default: %(default)g)")
    parser.add_argument("--warm-up", type=int, default=defaults.warm_up, help="steps (default: %(default)s)")
    parser.add_argument(
        "--other-sentences",
        type=float,
        default=defaults.other_sentences,
        metavar="SHARE",
        help="of ticks, whose actions follow another sentence than the expert's (default: %(default)g)",
    )
    parser.add_argument(
        "--other-routes",
        type=float,
        default=defaults.other_routes,
        metavar="SHARE",
        help="of ticks before junctions, that show another way out than the drive's (default: %(default)g)",
    )
    parser.add_argument(
        "--cars-ahead",
        type=float,
        default=defaults.ahead_share,
        metavar="SHARE",
        help="of the roads, that have a car ahead (default: %(default)g)",
    )
    parser.add_argument(
        "--car-weight",
        type=float,
        default=defaults.emphasis.cars,
        metavar="N",
        help="ticks behind a car are drawn so many times as often as on a free straight (default: %(default)g)",
    )
    parser.add_argument(
        "--road-weight",
        type=float,
        default=defaults.emphasis.roads,
        metavar="N",
        help="the same before junctions and in bends (default: %(default)g)",
    )
    parser.add_argument("--drives", type=int, default=defaults.drives, help="at most (default: %(default)s)")
    parser.add_argument(
        "--kept-drives",
        type=int,
        default=defaults.kept_drives,
        help="in use at once, the newest (default: %(default)s)",
    )
    parser.add_argument("--first-seed", type=int, default=defaults.first_seed, help="of them (default: %(default)s)")
    parser.add_argument(
        "--drives-dir", type=Path, metavar="DIR", help="for recorded drives; pieces can share it (default: OUT/drives)"
    )
    parser.add_argument(
        "--drives-left",
        type=int,
        metavar="N",
        help="on disk for the next piece, of those that were in use, the newest (default: all)",
    )
    parser.add_argument(
        "--first-drives", type=int, default=defaults.first_drives, help="before the first step (default: %(default)s)"
    )
    parser.add_argument("--drive-seconds", type=float, default=defaults.drive_seconds, help="(default: %(default)g)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N (default: %(default)s)")
    cores = max((os.cpu_count() or 2) - 1, 1)
    parser.add_argument("--workers", type=int, default=cores, help="that record drives (default: %(default)s)")
    parser.add_argument("--no-compile", action="store_true", help="on a GPU: don't let torch compile the step")
    parser.add_argument("--scored-drives", type=int, default=40, help="held-out drives; 0: no scores (default: 40)")
    parser.add_argument("--only-score", action="store_true", help="no training: score what lies in --out")
    options = parser.parse_args(arguments)
    return guarded(lambda: _work(options))


def _work(options: argparse.Namespace) -> int:
    device = resolve_device(options.device)
    checkpoint: Path = options.out / "checkpoint"
    if not options.only_score:
        _train(options, device, checkpoint)
    if options.scored_drives:
        drives = record_held_out(options.scored_drives, SCORED_SECONDS, options.workers)
        scores = score(checkpoint, options.device, drives)
        write_json(options.out / "scores.json", scores)
        print(json.dumps(scores, indent=2))
    return 0


def _train(options: argparse.Namespace, device: torch.device, checkpoint: Path) -> None:
    if not options.resume and (options.out / STATE_FILE).exists():
        raise ConfigurationError(f"{options.out} holds a training already; give --resume, or another folder")
    shutil.rmtree(checkpoint, ignore_errors=True)
    write_descriptions(checkpoint, PRESETS["mini"], {}, model_card(None))
    settings = TrainingSettings(
        seed=options.seed,
        batch=options.batch,
        peak_rate=options.rate,
        warm_up=options.warm_up,
        first_seed=options.first_seed,
        drives=options.drives,
        first_drives=options.first_drives,
        kept_drives=options.kept_drives,
        drive_seconds=options.drive_seconds,
        other_sentences=options.other_sentences,
        other_routes=options.other_routes,
        ahead_share=options.cars_ahead,
        emphasis=Emphasis(options.car_weight, options.road_weight),
    )
    if options.learner_every and options.begin_from is None:
        raise ConfigurationError("--learner-every needs a learner; give --begin-from")
    learner = Learner(options.begin_from, options.learner_every, learner_policy) if options.learner_every else None
    schedule = None
    if options.steps:
        schedule = Schedule(options.steps, options.drives_per_step or 0.0, options.steps_before)
    compiled = device.type == "cuda" and not options.no_compile
    piece = Piece(
        minutes=options.minutes,
        total_minutes=options.of or options.minutes,
        workers=options.workers,
        drives_per_step=options.drives_per_step,
        steps_before=options.steps_before,
        resume=options.resume,
        schedule=schedule,
        compiled=compiled,
        keep_drives=options.drives_left,
        drives=options.drives_dir,
        learner=learner,
        begin_from=options.begin_from,
    )
    course = Course(ModelConfig.load(checkpoint), options.out, settings, piece, device)
    course.run()
    write_checkpoint(checkpoint, course.trainer)
    ending = "done" if course.finished else "to be resumed"
    print(f"{options.out}: step {course.trainer.step} of {course.schedule}; {ending}")


if __name__ == "__main__":
    run_command(main)
