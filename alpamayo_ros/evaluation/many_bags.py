"""The results of several bags in one folder, with a summary of all ticks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag_tasks import BagTask
from alpamayo_ros.evaluation.html_report import write_summary_html
from alpamayo_ros.evaluation.output_folder import REPORT, TICKS
from alpamayo_ros.evaluation.report import OPEN_LOOP, summarise

FORMAT = "alpamayo_ros evaluations 1"  # summary.json's "format": what marks a folder as ours
SUMMARY, SUMMARY_PAGE = "summary.json", "summary.html"
DONE, UNFINISHED = "done", "running"  # of a summary


def summarise_all(done: Sequence[BagTask]) -> dict[str, Any]:
    """The figures over all ticks of the bags that have results, as in a report, and each bag's own counts."""
    records: list[Mapping[str, Any]] = []
    bags, notes = {}, [OPEN_LOOP]
    for task in done:
        records += [json.loads(line) for line in (task.out / TICKS).read_text(encoding="utf-8").splitlines()]
        report = json.loads((task.out / REPORT).read_text(encoding="utf-8"))
        bags[task.name] = {name: report[name] for name in ("ticks", "skips", "metrics", "trained")}
        notes += [note for note in report["notes"] if note not in notes]
    return {"format": FORMAT, "notes": notes, **summarise(records), "bags": bags}


def check_many(out: Path, run: Mapping[str, Any], *, overwrite: bool) -> bool:
    """Whether `out` holds an unfinished run of the same kind, to be gone on with.

    Raises:
        ConfigurationError: something is at `out` that must stay.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    try:
        found = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
        ours = found["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        ours = False
    if not ours:
        raise ConfigurationError(f"{out} exists and holds no evaluations: choose another folder, or remove it yourself")
    if found["state"] == UNFINISHED and found["run"] == dict(run):
        return True
    if not overwrite:
        raise ConfigurationError(f"{out} holds earlier evaluations: choose another folder, or give --overwrite")
    return False


def write_summary(out: Path, state: str, run: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """summary.json, and summary.html where there are results."""
    out.mkdir(parents=True, exist_ok=True)
    if content:
        write_summary_html(out / SUMMARY_PAGE, content, content["failed"])
    text = json.dumps({"format": FORMAT, "state": state, "run": dict(run), **content}, indent=1, allow_nan=False)
    (out / SUMMARY).write_text(text + "\n", encoding="utf-8")
