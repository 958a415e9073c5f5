"""Bags to evaluate, each by a process of its own, several at a time on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.output_folder import is_evaluation
from alpamayo_ros.progress import progress

PROGRAM = "alpamayo_ros.tools.evaluate_bag"
POLL = 0.1  # s
PATIENCE = 30.0  # s for an interrupted process
LAST_LINES = 3  # of what a failed process said


@dataclass(frozen=True)
class BagTask:
    """One bag's evaluation."""

    name: str  # of the results' folder
    bag: Path
    out: Path
    arguments: tuple[str, ...]  # of PROGRAM

    @property
    def log(self) -> Path:
        """Where the output of one that failed is."""
        return self.out.parent / f"{self.name}.log"


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
        found[name] = BagTask(name, bag, out / name, (str(bag), "--out", str(out / name), *arguments))
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
                    running[task.name] = start(task.arguments, task.log, environment, Path.cwd())
                for task in wanted:
                    process = running.get(task.name)
                    if process is not None and process.poll() is not None:
                        results[task.name] = result(task, process.returncode)
                        del running[task.name]
                        bar.update()
                time.sleep(POLL)
        except KeyboardInterrupt:
            interrupt(list(running.values()))
            raise
    return [results[task.name] for task in wanted]


def start(arguments: Sequence[str], log: Path, environment: Mapping[str, str], folder: Path) -> subprocess.Popen[str]:
    """PROGRAM in `folder`, in a session of its own, so that Ctrl-C comes once, from here."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as stream:
        return subprocess.Popen(
            (sys.executable, "-m", PROGRAM, *arguments), stdout=stream, stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL, text=True, start_new_session=True, env=environment, cwd=folder,
        )  # fmt: skip


def result(task: BagTask, status: int) -> BagResult:
    """What became of a task whose process has ended; its log stays when it has failed."""
    said = task.log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    if status == 0 or is_evaluation(task.out):
        task.log.unlink()
        return BagResult(task)
    lines = [line for line in said if line.strip()][-LAST_LINES:]
    return BagResult(task, "\n".join(lines) or f"ended with status {status}")


def interrupt(processes: Sequence[subprocess.Popen[str]]) -> None:
    """End them in order, so that they keep what they have."""
    for process in processes:
        process.send_signal(signal.SIGTERM)  # SIGINT may be ignored, as in the processes of Ray
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
