"""Runs a recorded tick through the engine again, and compares.

The file is one that the node's recorder wrote (parameters recorder.*, service ~/save_ticks). The engine is made from
the parameters in it, as the node made it, unless other ones are given here. The tick gets the same images, history,
seed and draft tokens.

Ends with 0 when trajectories and tokens agree, or the same error comes again; with 1 when not; with 2 when the file or
the engine can't be used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alpamayo_ros.core.settings import Settings, parse_settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import KINDS, engine_by_settings
from alpamayo_ros.engine.tick_comparison import compare, run_again
from alpamayo_ros.engine.tick_file import RecordedTick, TickFile, read_ticks
from alpamayo_ros.evaluation.rig import parameter_argument
from alpamayo_ros.tools.command import guarded, run_command

SAME, DIFFERENT, UNUSABLE = 0, 1, 2


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.replay_tick",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="ends in .ticks.zip")
    add("--tick", type=int, default=-1, metavar="N", help="which one, from 0; from -1 backwards (default: the last)")
    add("--all", action="store_true", help="all of them, oldest first")
    add("--list", action="store_true", help="say what the file holds, and run nothing")
    add("--tolerance", type=float, default=0.01, metavar="M", help="largest difference that is the same (default 0.01)")
    add("--checkpoint", metavar="DIR", help="default: as recorded")
    add("--engine", choices=KINDS, help="default: as recorded")
    add("--device", help="auto, cpu, cuda or cuda:N (default: as recorded)")
    add(
        *("-p", "--parameter"),
        action="append",
        default=[],
        metavar="NAME:=VALUE",
        help="another parameter of the engine, such as -p engine.dtype:=float32; may be repeated",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; see the module for what it returns."""
    options = build_parser().parse_args(arguments)
    return guarded(lambda: _run(options), unusable=UNUSABLE)


def _run(options: argparse.Namespace) -> int:
    content = read_ticks(options.file)
    _describe(content)
    if options.list:
        return SAME
    ticks = _chosen(content, options)
    engine = _engine(_settings(content, options))
    try:
        _note_other_engine(content, engine)
        same = [_replay(engine, number, tick, options.tolerance) for number, tick in ticks.items()]
    finally:
        engine.close()
    return SAME if all(same) else DIFFERENT


def _describe(content: TickFile) -> None:
    info = content.engine
    trained = "" if info.trained else ", not trained"
    print(f"engine   {info.engine} on {info.device}, {info.dtype}: {info.model}{trained}")
    print(f"written  because of {content.why}, with {len(content.ticks)} ticks")
    for number, tick in enumerate(content.ticks):
        cameras = ", ".join(map(str, tick.observation.frames))
        print(f"tick {number:<3} t0 {tick.observation.t0_ns} ns, cameras {cameras}: {_outcome(tick)}")


def _outcome(tick: RecordedTick) -> str:
    if not tick.finished:
        return "the engine was still at it"
    if tick.prediction is None:
        return f"{tick.error} after {tick.engine_ms:.1f} ms"
    return f"{tick.prediction.num_samples} samples after {tick.engine_ms:.1f} ms"


def _chosen(content: TickFile, options: argparse.Namespace) -> Mapping[int, RecordedTick]:
    ticks = dict(enumerate(content.ticks))
    if options.all:
        return ticks
    number = options.tick + len(ticks) if options.tick < 0 else options.tick
    if number not in ticks:
        raise ConfigurationError(f"--tick is {options.tick}: {options.file} has {len(ticks)} ticks, from 0")
    return {number: ticks[number]}


def _settings(content: TickFile, options: argparse.Namespace) -> Settings:
    given = {"engine.checkpoint": options.checkpoint, "engine.kind": options.engine, "engine.device": options.device}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return parse_settings({**content.settings, **changes, **dict(map(parameter_argument, options.parameter))})


def _engine(settings: Settings) -> Engine:
    wanted = settings.engine
    print(f"loading the {wanted.kind} engine {wanted.checkpoint}".rstrip(), file=sys.stderr)
    engine = engine_by_settings(settings)
    engine.warm_up()
    return engine


def _note_other_engine(content: TickFile, engine: Engine) -> None:
    for name in ("engine", "model_type", "checkpoint_hash", "device", "dtype", "quantization"):
        recorded, now = getattr(content.engine, name), getattr(engine.info, name)
        if recorded != now:
            print(f"note     {name} is {now!r} now, and was {recorded!r}")


def _replay(engine: Engine, number: int, tick: RecordedTick, tolerance: float) -> bool:
    print(f"\ntick {number}, t0 {tick.observation.t0_ns} ns, seed {tick.options.seed}")
    again = run_again(engine, tick)
    comparison = compare(tick, again, tolerance)
    print(f"  recorded   {_outcome(tick)}")
    print(f"  now        {_outcome(again)}")
    for line in comparison.lines:
        print(f"  {line}")
    print("  the same" if comparison.same else "  DIFFERENT")
    return comparison.same


if __name__ == "__main__":
    run_command(main)
