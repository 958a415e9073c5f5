"""Several bags at once: a process for each, and one summary of all ticks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.output_folder import REPORT, TICKS, is_evaluation
from alpamayo_ros.evaluation.report import OPEN_LOOP, summarise
from alpamayo_ros.progress import progress

FORMAT = "alpamayo_ros evaluations 1"  # summary.json's "format": what marks a folder as ours
SUMMARY = "summary.json"
DONE, UNFINISHED = "done", "running"  # of a summary
POLL = 0.1  # s
PATIENCE = 30.0  # s for an interrupted process
LAST_LINES = 3  # of what a failed process said


@dataclass(frozen=True)
class BagTask:
    """One bag's evaluation."""

    name: str  # of the results' folder
    bag: Path
    out: Path
    command: tuple[str, ...]


@dataclass(frozen=True)
class BagResult:
    """What became of it."""

    task: BagTask
    error: str = ""  # why there are no results; "" when there are


def tasks(bags: Sequence[Path], out: Path, arguments: Sequence[str]) -> list[BagTask]:
    """One for each bag, its results in a folder of `out` with the bag's name.

    Raises:
        ConfigurationError: two bags have the same name.
    """
    found: dict[str, BagTask] = {}
    for bag in bags:
        name = bag.resolve().stem if bag.suffix in (".mcap", ".db3") else bag.resolve().name
        if name in found:
            raise ConfigurationError(
                f"{bag} and {found[name].bag} have the same name, and so would their results: evaluate them apart"
            )
        command = (sys.executable, "-m", "alpamayo_ros.tools.evaluate_bag", str(bag), "--out", str(out / name))
        found[name] = BagTask(name, bag, out / name, (*command, *arguments))
    return list(found.values())


def run_all(wanted: Sequence[BagTask], jobs: int) -> list[BagResult]:
    """Run them, `jobs` at a time; one that fails doesn't stop the others. In the order in which they were given.

    Raises:
        KeyboardInterrupt: after every process has kept what it has.
    """
    waiting, running = list(wanted), dict[str, subprocess.Popen[str]]()
    results: dict[str, BagResult] = {}
    threads = max(1, (os.cpu_count() or 1) // min(jobs, max(len(wanted), 1)))
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}  # else every process takes all cores
    with progress(total=len(wanted), desc="evaluating", unit=" bags", disable=not wanted) as bar:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    task = waiting.pop(0)
                    running[task.name] = _start(task, environment)
                for task in wanted:
                    process = running.get(task.name)
                    if process is not None and process.poll() is not None:
                        results[task.name] = _result(task, process)
                        del running[task.name]
                        bar.update()
                time.sleep(POLL)
        except KeyboardInterrupt:
            _interrupt(list(running.values()))
            raise
    return [results[task.name] for task in wanted]


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
    """summary.json."""
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, "state": state, "run": dict(run), **content}, indent=1, allow_nan=False)
    (out / SUMMARY).write_text(text + "\n", encoding="utf-8")


def _start(task: BagTask, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """In a session of its own, so that Ctrl-C comes once, from here."""
    log = task.out.parent / f"{task.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as stream:
        return subprocess.Popen(
            task.command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
            start_new_session=True, env=environment,
        )  # fmt: skip


def _result(task: BagTask, process: subprocess.Popen[str]) -> BagResult:
    log = task.out.parent / f"{task.name}.log"
    said = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    if process.returncode == 0 or is_evaluation(task.out):
        log.unlink()
        return BagResult(task)
    lines = [line for line in said if line.strip()][-LAST_LINES:]
    return BagResult(task, "\n".join(lines) or f"ended with status {process.returncode}")


def _interrupt(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
