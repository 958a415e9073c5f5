"""Shows what changed from one evaluation to another: how they were run, and what came of it.

Differences are over the ticks that both have, with an interval at 95 % where the drive is long enough for one. A star
marks those whose interval doesn't hold 0.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.evaluation.compare import Change, Evaluation, changes, differences, load_evaluation
from alpamayo_ros.tools.command import run_command

NONE = "-"


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        0, or 1 when one of the two can't be read.
    """
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.compare_reports",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", type=Path, metavar="A", help="a folder that evaluate_bag wrote")
    parser.add_argument("after", type=Path, metavar="B", help="another one")
    options = parser.parse_args(arguments)
    try:
        before, after = load_evaluation(options.before), load_evaluation(options.after)
    except AlpamayoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(comparison(before, after))
    return 0


def comparison(before: Evaluation, after: Evaluation) -> str:
    """What the command prints."""
    lines = [f"A: {before.path}", f"B: {after.path}", ""]
    run = differences(before, after)
    lines += ["run differently:" if run else "run in the same way: same recording, parameters, engine and versions"]
    lines += [f"  {name}: {old} -> {new}" for name, (old, new) in run.items()]
    common = len(before.ticks.keys() & after.ticks.keys())
    lines += ["", f"scored ticks: A {len(before.ticks)}, B {len(after.ticks)}, {common} of them in both", ""]
    lines += [f"{'':<16}{'A':>10}{'B':>10}   B less A over the ticks of both", *map(_row, changes(before, after))]
    if not common:
        lines += ["", "No tick is in both, so the figures are of different scenes."]
    return "\n".join(lines)


def _row(change: Change) -> str:
    row = f"{change.name:<16}{_number(change.before):>10}{_number(change.after):>10}"
    paired = change.paired
    if paired is None or paired["mean"] is None:
        return row
    row += f"   {paired['mean']:+.3f}"
    if paired["low"] is not None:
        certain = paired["low"] > 0 or paired["high"] < 0
        row += f" [{paired['low']:+.3f}, {paired['high']:+.3f}]{' *' if certain else ''}"
    return f"{row}  (n = {paired['n']})"


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


if __name__ == "__main__":
    run_command(main)
