"""The report of a closed loop, and one report of several that drove routes of their own side by side.

python -m alpamayo_ros.tools.closed_loop_report out/a/report.json out/b/report.json --out out/closed_loop
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.scoring import ClosedLoopScore, score_table
from alpamayo_ros.tools.command import guarded, run_command

FORMAT = "alpamayo_ros closed loop 1"
NAME = "report.json"
SHARED = ("format", "engine", "trained", "latency_s")  # what reports have in common that can be joined


def passed(scores: Sequence[ClosedLoopScore]) -> int:
    """How many routes were driven to their end, in the lane, without a collision."""
    return sum(each.passed for each in scores)


def results(scores: Sequence[ClosedLoopScore]) -> dict[str, Any]:
    """The report's part on one driver."""
    return {"passed": passed(scores), "routes": [{**asdict(each), "passed": each.passed} for each in scores]}


def scores_of(part: Mapping[str, Any]) -> list[ClosedLoopScore]:
    """The scores that `results` wrote."""
    names = {field.name for field in fields(ClosedLoopScore)}
    return [ClosedLoopScore(**{name: route[name] for name in names}) for route in part["routes"]]


def joined(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One report of several, whose routes come in the order of their seeds.

    Raises:
        ConfigurationError: reports of different engines or conditions, or of the same route.
    """
    first = reports[0]
    for name in SHARED:
        values = [report.get(name) for report in reports]
        if any(value != values[0] for value in values):
            raise ConfigurationError(f"the reports differ in {name}: {values}; it has to be the same in all")
    compared = [set(report["compared"]) for report in reports]
    if any(names != compared[0] for names in compared):
        raise ConfigurationError("the reports compare with different drivers; they have to be the same in all")
    ticks, skips = Counter[str](), Counter[str]()
    for report in reports:
        numbers = dict(report["ticks"])
        skips.update(numbers.pop("skips", {}))
        ticks.update(numbers)
    return {
        **{name: first.get(name) for name in SHARED},
        **_joined_parts(reports),
        "ticks": {**ticks, "skips": dict(skips)},
        "compared": {name: _joined_parts([report["compared"][name] for report in reports]) for name in compared[0]},
        "versions": first.get("versions"),
    }


def _joined_parts(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = sorted((score for part in parts for score in scores_of(part)), key=lambda score: score.seed)
    twice = [seed for seed, count in Counter(score.seed for score in scores).items() if count > 1]
    if twice:
        raise ConfigurationError(f"the routes {twice} are in several reports; each has to be in one")
    return results(scores)


def write_report(report: Mapping[str, Any], folder: Path) -> Path:
    """Write it, and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    print(f"report:     {path}")
    return path


def read_report(path: Path) -> dict[str, Any]:
    """A report that was written.

    Raises:
        ConfigurationError: a file that is none.
    """
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path} can't be read: {error}") from error
    if report.get("format") != FORMAT:
        raise ConfigurationError(f"{path} has the format {report.get('format')!r}; expected {FORMAT!r}")
    return report


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.closed_loop_report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("reports", type=Path, nargs="+", metavar="REPORT")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help=f"where the one {NAME} goes")
    options = parser.parse_args(arguments)

    def work() -> int:
        report = joined([read_report(path) for path in options.reports])
        print(score_table(scores_of(report)))
        write_report(report, options.out)
        return 0

    return guarded(work)


if __name__ == "__main__":
    run_command(main)
