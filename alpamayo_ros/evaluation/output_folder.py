"""A folder of results that appears whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.partial_folder import fill, partial_folder, put_in_place

REPORT, TICKS, PAGE = "report.json", "ticks.jsonl", "report.html"
FORMAT = "alpamayo_ros evaluation 1"  # report.json's "format": what marks a folder as ours


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a place that results can't go to.

    Raises:
        ConfigurationError: something is at `path` that must stay.
    """
    try:
        path.lstat()
        if path.is_dir() and not any(path.iterdir()):
            return
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(f"results can't be written to {path}: {error}") from error
    if not is_evaluation(path):
        raise ConfigurationError(f"{path} exists and holds no evaluation: choose another folder, or remove it yourself")
    if not overwrite:
        raise ConfigurationError(f"{path} holds an earlier evaluation: choose another folder, or give --overwrite")


def unfinished(path: Path) -> Path:
    """Where the answers of a run are kept until its results are at `path`."""
    return path.parent / f".{path.name}.unfinished"


def is_evaluation(path: Path) -> bool:
    """Whether a folder was written by an evaluation."""
    try:
        report = json.loads((path / REPORT).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(report, dict) and report.get("format") == FORMAT


@contextmanager
def output_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary folder, whose content is that of `path` when the block ends without an exception.

    Raises:
        ConfigurationError: something is at `path` that must stay, or nothing can be written there.
    """
    check_output(path, overwrite=overwrite)
    there = path.is_dir()
    try:
        if not there:
            path.parent.mkdir(parents=True, exist_ok=True)
        with partial_folder(path if there else path.parent, path.name) as partial:
            yield partial
            if there:
                fill(path, partial)
            else:
                put_in_place(partial, path)
    except OSError as error:
        raise ConfigurationError(f"results can't be written to {path}: {error}") from error
    except ConfigurationError as error:
        if isinstance(error.__cause__, OSError):  # of the result bag, whose name nobody knows before it is in place
            raise ConfigurationError(f"results can't be written to {path}: {error.__cause__}") from error
        raise
