"""Evaluates a model on a recorded drive, offline.

The bag goes through the same observation builder and engine as in the node, each tick with what had arrived by then.
The results are a folder: report.json, ticks.jsonl (a line per tick), tick.png and a bag of the node's output topics.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import AlpamayoError, ConfigurationError
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import engine_by_settings
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.evaluate import Job, check_engine, evaluate
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.output_folder import REPORT, check_output
from alpamayo_ros.evaluation.report import skip_table, table
from alpamayo_ros.evaluation.rig import load_rig, parameter_argument
from alpamayo_ros.tools.command import INTERRUPTED, run_command


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.evaluate_bag",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("bag", type=Path, help="a bag's folder, or a .mcap or .db3 file")
    add("--config", type=Path, required=True, metavar="RIG.yaml", help="the node's parameter file for this rig")
    add("--checkpoint", metavar="DIR", help="folder of the checkpoint (default: engine.checkpoint of the config)")
    add("--base-model", metavar="PATH", help="folder or name for the backbone's tokenizer (default: as in the config)")
    add("--out", type=Path, required=True, metavar="DIR", help="where the results go; must not exist yet")
    add("--overwrite", action="store_true", help="replace an earlier evaluation in --out")
    add("--stride", type=float, default=0.5, metavar="SECONDS", help="between ticks, at least 0.1 (default 0.5)")
    add("--samples", type=int, metavar="K", help="trajectories per tick (default: as in the config)")
    add("--engine", choices=("transformers", "vllm", "null"), help="default: as in the config")
    add("--device", help="auto, cpu, cuda or cuda:N (default: as in the config)")
    add("--reasoning", choices=("shared", "independent", "off", "given"), help="default: as in the config")
    add("--seed", type=int, help="default: as in the config")
    add("--odometry-topic", metavar="TOPIC", help="default: as in the config")
    add(
        *("-p", "--parameter"),
        action="append",
        default=[],
        metavar="NAME:=VALUE",
        help="any other parameter of the node, such as -p cameras.front_wide.topic:=/camera/image; may be repeated",
    )
    add("--ideal", action="store_true", help="ignore arrival times: take every message as received at its stamp")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 when there are results; 1 when something can't be used, or no tick gave a path; 130 when interrupted.
    """
    options = build_parser().parse_args(arguments)
    try:
        return _evaluate(options)
    except AlpamayoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED


def _evaluate(options: argparse.Namespace) -> int:
    settings = load_rig(options.config, _changes(options))
    check_output(options.out, overwrite=options.overwrite)
    with BagReader(options.bag) as bag:
        inputs = BagInputs(bag, settings)
        engine = _engine(settings)
        try:
            job = Job(bag, inputs, settings, engine, ideal=options.ideal, show_progress=True)
            report = evaluate(job, options.out, overwrite=options.overwrite)
        finally:
            engine.close()
    _show(report, options.out)
    return 0 if report["ticks"]["ok"] else 1


def _engine(settings: Settings) -> Engine:
    wanted = settings.engine
    print(f"loading the {wanted.kind} engine {wanted.checkpoint}".rstrip(), file=sys.stderr)
    engine = engine_by_settings(settings)
    check_engine(engine, settings)
    engine.warm_up()
    return engine


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters that the command line sets."""
    if not 0.1 <= options.stride <= 10:
        raise ConfigurationError(f"--stride is {options.stride:g}: it must be from 0.1 to 10 s")
    changes: dict[str, Any] = dict(map(parameter_argument, options.parameter))
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
