"""A folder of results that appears whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alpamayo_ros.core.types import ConfigurationError

REPORT = "report.json"
FORMAT = "alpamayo_ros evaluation 1"  # report.json's "format": what marks a folder as ours


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a place that results can't go to.

    Raises:
        ConfigurationError: something is at `path` that must stay.
    """
    if not os.path.lexists(path):
        return
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        return
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
    """A temporary folder beside `path`, which takes its place when the block ends without an exception.

    Raises:
        ConfigurationError: something is at `path` that must stay, or nothing can be written there.
    """
    check_output(path, overwrite=overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent))
    except OSError as error:
        raise ConfigurationError(f"results can't be written to {path}: {error}") from error
    try:
        partial.chmod(0o755)
        yield partial
        _replace(path, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(path: Path, partial: Path) -> None:
    if not path.exists():
        partial.rename(path)
        return
    earlier = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".earlier", dir=path.parent))
    path.rename(earlier / path.name)
    partial.rename(path)
    shutil.rmtree(earlier, ignore_errors=True)
