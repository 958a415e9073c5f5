"""Evaluates a model on a recorded drive, offline.

The bag goes through the same observation builder and engine as in the node, each tick with what had arrived by then.
The results are a folder: report.html to look at, report.json, ticks.jsonl (a line per tick), tick.png and a bag of the
node's output topics.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import KINDS, engine_by_settings
from alpamayo_ros.engine.limits import check_limits
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.bag_tasks import run_all, tasks
from alpamayo_ros.evaluation.bag_tasks_on_ray import run_all_on_ray
from alpamayo_ros.evaluation.evaluate import Job, evaluate
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.many_bags import (
    DONE,
    SUMMARY,
    SUMMARY_PAGE,
    UNFINISHED,
    check_many,
    summarise_all,
    write_summary,
)
from alpamayo_ros.evaluation.output_folder import REPORT, check_output, is_evaluation, unfinished
from alpamayo_ros.evaluation.pose_source import OdometryPoses, PoseSource
from alpamayo_ros.evaluation.report import skip_table, table
from alpamayo_ros.evaluation.rig import load_rig, parameter_argument
from alpamayo_ros.evaluation.shown_ticks import WORST
from alpamayo_ros.evaluation.thresholds import NAMES, TOO_BAD, Limit, broken, figure, parse_limit
from alpamayo_ros.evaluation.transform_poses import TransformFrames, TransformPoses
from alpamayo_ros.tools.command import guarded, run_command


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.evaluate_bag",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("bag", type=Path, nargs="+", help="a bag's folder, or a .mcap or .db3 file; several run beside each other")
    add("--config", type=Path, required=True, metavar="RIG.yaml", help="the node's parameter file for this rig")
    add("--checkpoint", metavar="DIR", help="folder of the checkpoint (default: engine.checkpoint of the config)")
    add("--base-model", metavar="PATH", help="folder or name for the backbone's tokenizer (default: as in the config)")
    add(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="where the results go, of several bags into a folder each; must not exist yet",
    )
    add(
        "--jobs", type=int, metavar="N", help="of several bags, how many at a time (default: one per CPU core; CUDA: 1)"
    )
    add(
        "--ray",
        metavar="ADDRESS",
        help="run the bags on a Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local to start one here; its "
        "machines need this package, and the same folders",
    )
    add("--overwrite", action="store_true", help="replace an earlier evaluation in --out")
    add("--stride", type=float, default=0.5, metavar="SECONDS", help="between ticks, at least 0.1 (default 0.5)")
    add("--samples", type=int, metavar="K", help="trajectories per tick (default: as in the config)")
    add("--engine", choices=KINDS, help="default: as in the config")
    add("--device", help="auto, cpu, cuda or cuda:N (default: as in the config)")
    add("--reasoning", choices=("shared", "independent", "off", "given"), help="default: as in the config")
    add("--seed", type=int, help="default: as in the config")
    add("--odometry-topic", metavar="TOPIC", help="default: as in the config")
    add("--pose-source", choices=("odometry", "tf"), help="tf: for drives without odometry (default: as in the config)")
    add("--tf-parent", default="", metavar="FRAME", help="with --pose-source tf (default: odom, or map without odom)")
    add("--tf-child", default="", metavar="FRAME", help="with --pose-source tf (default: odometry.base_frame)")
    add(
        *("-p", "--parameter"),
        action="append",
        default=[],
        metavar="NAME:=VALUE",
        help="any other parameter of the node, such as -p cameras.front_wide.topic:=/camera/image; may be repeated",
    )
    add(
        "--fail-above",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"end with status {TOO_BAD} when a figure is above it; NAME is one of {', '.join(NAMES)}; may be repeated",
    )
    add("--pictures", type=int, default=WORST, metavar="N", help=f"worst ticks that the page shows (default {WORST})")
    add("--ideal", action="store_true", help="ignore arrival times: take every message as received at its stamp")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 when there are results; 1 when something can't be used, or no tick gave a path; 3 when a figure is above a
        limit of --fail-above; 130 after Ctrl-C, 143 after SIGTERM.
    """
    given = sys.argv[1:] if arguments is None else arguments
    options = build_parser().parse_args(given)
    several = len(options.bag) > 1 or options.ray is not None
    work = partial(_evaluate_many, options, given) if several else partial(_evaluate, options)
    return guarded(work, interrupted=lambda: _interrupted(options.out if several else unfinished(options.out)))


def _interrupted(kept: Path) -> str:
    goes_on = f"its ticks are in {kept}, and the same command goes on from there"
    return f"interrupted; {goes_on if kept.exists() else 'nothing was written'}"


def _evaluate(options: argparse.Namespace) -> int:
    limits = [parse_limit(text) for text in options.fail_above]
    settings = load_rig(options.config, _changes(options))
    check_output(options.out, overwrite=options.overwrite)
    with BagReader(options.bag[0]) as bag:
        inputs = BagInputs(bag, settings, _pose_source(options, settings))
        engine = _engine(settings)
        try:
            job = Job(bag, inputs, settings, engine, options.ideal, show_progress=True, pictures=options.pictures)
            report = evaluate(job, options.out, overwrite=options.overwrite)
        finally:
            engine.close()
    _show(report, options.out)
    return _status(report, limits)


def _evaluate_many(options: argparse.Namespace, given: list[str]) -> int:
    """Several bags, each in a process of its own, with a summary of all."""
    if options.jobs is not None and options.jobs < 1:
        raise ConfigurationError(f"--jobs is {options.jobs}: it must be at least 1")
    limits = [parse_limit(text) for text in options.fail_above]
    settings = load_rig(options.config, _changes(options))
    passed_on = _without(given, [str(bag) for bag in options.bag], ("--out", "--jobs", "--fail-above", "--ray"))
    wanted = tasks(options.bag, options.out, passed_on)
    run = {"bags": [str(bag.resolve()) for bag in options.bag], "arguments": passed_on}
    goes_on = check_many(options.out, run, overwrite=options.overwrite)
    write_summary(options.out, UNFINISHED, run, {})
    finished = {task.name for task in wanted if goes_on and is_evaluation(task.out)}
    left = [task for task in wanted if task.name not in finished]
    if options.ray is None:
        results = run_all(left, options.jobs or _jobs(settings))
    else:
        gpu = settings.engine.kind != "null" and settings.engine.device != "cpu"
        results = run_all_on_ray(left, options.ray, options.jobs, gpu=gpu)
    failed = [result for result in results if result.error]
    done = [task for task in wanted if task.name not in {result.task.name for result in failed}]
    summary = summarise_all(done)
    failures = {result.task.name: result.error for result in failed}
    write_summary(options.out, UNFINISHED if failed else DONE, run, {**summary, "failed": failures})
    _show_many(summary, failures, options.out)
    return _status(summary, limits, failed=bool(failed))


def _without(given: list[str], bags: list[str], names: tuple[str, ...]) -> list[str]:
    """The arguments that every bag's own evaluation gets: all but the bags and these options."""
    left, skip = [], False
    for argument in given:
        if skip:
            skip = False
        elif argument in names:
            skip = True
        elif argument not in bags and not argument.startswith(tuple(f"{name}=" for name in names)):
            left.append(argument)
    return left


def _jobs(settings: Settings) -> int:
    """How many at a time, when nobody says."""
    if settings.engine.kind == "null":
        return os.cpu_count() or 1
    from alpamayo_ros.engine.device import resolve_device

    return 1 if resolve_device(settings.engine.device).type == "cuda" else os.cpu_count() or 1


def _show_many(summary: Mapping[str, Any], failures: Mapping[str, str], out: Path) -> None:
    width = max([len(name) for name in summary["bags"]] + [4])
    print(f"\n{'bag':<{width}}{'ticks':>8}{'ok':>7}{'minADE6':>10}{'ADE@6.4':>10}")
    for name, report in summary["bags"].items():
        figures = (figure({**report, "timings_ms": {}}, wanted) for wanted in ("minADE6", "ADE@6.4"))
        shown = "".join(f"{'-' if value is None else f'{value:.2f}':>10}" for value in figures)
        print(f"{name:<{width}}{report['ticks']['total']:>8}{report['ticks']['ok']:>7}{shown}")
    for name, error in failures.items():
        print(f"failed: {name}: {error}", file=sys.stderr)
    print(f"\nall of them:\n{table(summary)}\n")
    for note in summary["notes"]:
        print(note)
    print(f"\npage:       {out / SUMMARY_PAGE}\nsummary:    {out / SUMMARY}")


def _status(report: Mapping[str, Any], limits: Sequence[Limit], *, failed: bool = False) -> int:
    too_bad = broken(report, limits)
    for text in too_bad:
        print(f"failed: {text}", file=sys.stderr)
    if failed or not report["ticks"]["ok"]:
        return 1
    return TOO_BAD if too_bad else 0


def _pose_source(options: argparse.Namespace, settings: Settings) -> PoseSource:
    frames = TransformFrames(options.tf_parent, options.tf_child)
    by_settings = settings.odometry.source == "tf"
    if options.pose_source == "tf" or (options.pose_source is None and by_settings):
        if by_settings:
            frames = replace(frames, parent=frames.parent or settings.odometry.tf_parent)
        if options.odometry_topic is not None:
            raise ConfigurationError(f"--odometry-topic {options.odometry_topic}: --pose-source tf takes none")
        return TransformPoses(frames, settings.odometry)
    if frames != TransformFrames():
        raise ConfigurationError("--tf-parent and --tf-child are for --pose-source tf")
    return OdometryPoses(settings.odometry)


def _engine(settings: Settings) -> Engine:
    wanted = settings.engine
    print(f"loading the {wanted.kind} engine {wanted.checkpoint}".rstrip(), file=sys.stderr)
    engine = engine_by_settings(settings)
    check_limits(settings, engine.info)
    engine.warm_up()
    return engine


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters that the command line sets; refuses numbers that can't be."""
    if not 0.1 <= options.stride <= 10:
        raise ConfigurationError(f"--stride is {options.stride:g}: it must be from 0.1 to 10 s")
    if options.pictures < 0:
        raise ConfigurationError(f"--pictures is {options.pictures}: it must be at least 0")
    changes: dict[str, Any] = dict(map(parameter_argument, options.parameter))
    if "rate_hz" in changes:
        raise ConfigurationError(f"--parameter rate_hz:={changes['rate_hz']}: give --stride, the seconds between ticks")
    changes["rate_hz"] = 1.0 / options.stride
    given = {
        "engine.checkpoint": options.checkpoint,
        "engine.base_model": options.base_model,
        "engine.kind": options.engine,
        "engine.device": options.device,
        "sampling.num_samples": options.samples,
        "sampling.reasoning": options.reasoning,
        "sampling.seed": options.seed,
        "odometry.topic": options.odometry_topic,
    }
    return changes | {name: value for name, value in given.items() if value is not None}


def _show(report: Mapping[str, Any], out: Path) -> None:
    ticks, files = report["ticks"], report["files"]
    for warning in report["bag"]["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"\n{ticks['ok']} of {ticks['total']} ticks gave a path; skipped, by reason:")
    print(skip_table(report["skips"]))
    early = report["skips_before_first_path"]
    if early and ticks["ok"]:
        print(f"{early} of these before the first path: until then a tick is tried every 0.1 s, whatever --stride says")
    if report["skips_after_last_image"]:
        print(f"not counted: {report['skips_after_last_image']} after the last image, for want of another")
    why = report["why_no_tick"]
    if why is not None:
        print(f"no tick could be decided at all: {why['reason']} {why['numbers']}")
    if ticks["ok"]:
        print(f"\n{table(report)}")
        engine = report["timings_ms"]["engine_total"]
        print(f"engine: median {engine['median']:.0f} ms, 99 % within {engine['p99']:.0f} ms a tick")
    print()
    for note in report["notes"]:
        print(note)
    print()
    for name, file in {"report": REPORT, **files}.items():
        if file is not None:
            print(f"{name.replace('_', ' ') + ':':<12}{out / file}")


if __name__ == "__main__":
    run_command(main)
