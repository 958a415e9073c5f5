"""Runs the choice of frames and ego history on a scenario, without ROS, an engine or a clock.

A scenario is a file of lines of JSON: the configuration first, then events in order of arrival. Times are in seconds.

  {"type": "config", "cameras": {"front_wide": {"index": 1, "required": true}}, "anchor": "front_wide", "rate_hz": 10}
  {"at": 1.01, "type": "frame", "camera": "front_wide", "stamp": 1.0}
  {"at": 1.02, "type": "odometry", "stamp": 1.0, "position": [0, 0, 0], "orientation": [0, 0, 0, 1],
   "twist": [9.5, 0, 0, 0, 0, 0]}
  {"at": 1.03, "type": "clock", "now": 1.03}
  {"at": 1.03, "type": "tick"}

Printed is a line of JSON per tick: {"at", "t0", "ok", "skip", "frames", "ego_history", "counts"}, and on stderr how
many there were of each kind. docs/scenarios.md has all fields.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.scenario import Scenario, parse_scenario
from alpamayo_ros.evaluation.simulation import simulate
from alpamayo_ros.tools.command import guarded, run_command


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.simulate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", metavar="SCENARIO.jsonl", help="the scenario, or - for the standard input")
    parser.add_argument(
        "--explain", action="store_true", help='add "reasons": all that keeps a tick from being, with its numbers'
    )
    return parser


def load_scenario(path: str) -> Scenario:
    """Read a scenario.

    Raises:
        ConfigurationError: it can't be read; names the file, and what is wrong in which line.
    """
    try:
        if path == "-":
            return parse_scenario(sys.stdin.buffer)
        with Path(path).open("rb") as file:
            return parse_scenario(file)
    except OSError as error:
        raise ConfigurationError(f"the scenario {path} can't be read: {error.strerror}") from error
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}, {error}") from error


def summary(ticks: Counter[str]) -> str:
    """One line: how many ticks were ok, and how many skipped, by reason."""
    skips = [(reason, count) for reason, count in ticks.most_common() if reason != "ok"]
    reasons = ", ".join(f"{count} {reason}" for reason, count in skips)
    return f"{ticks['ok']} ok, {sum(count for _, count in skips)} skipped{': ' if reasons else ''}{reasons}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when the scenario ran, whatever its ticks gave."""
    options = build_parser().parse_args(arguments)
    return guarded(lambda: _simulate(options))


def _simulate(options: argparse.Namespace) -> int:
    scenario = load_scenario(options.scenario)
    for warning in scenario.warnings:
        print(f"warning: {options.scenario}, {warning}", file=sys.stderr)
    ticks: Counter[str] = Counter()
    for line in simulate(scenario, explain=options.explain):
        print(json.dumps(line))
        ticks[line["skip"] or "ok"] += 1
    print(summary(ticks), file=sys.stderr)
    return 0


if __name__ == "__main__":
    run_command(main)
