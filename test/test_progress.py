"""Progress in a log, and on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from alpamayo_ros import progress as module
from alpamayo_ros.progress import progress

ROOT = Path(__file__).parents[1]
SHORT = "from alpamayo_ros.progress import progress\nfor _ in progress(range(3), desc='working', unit=' steps'): pass"


def test_something_short_prints_nothing_into_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(range(3), desc="working")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_something_long_prints_whole_lines_into_a_log(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SELDOM", 0.0)
    for _ in progress(range(3), desc="working", unit=" steps", miniters=1):
        pass
    lines = capsys.readouterr().err.split("\n")
    assert lines[-2].startswith("working: 3 of 3 steps in 00:00")
    assert lines[-1] == ""
    assert "\r" not in "".join(lines)


def test_without_an_end_it_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SELDOM", 0.0)
    with progress(desc="playing", unit=" paths", miniters=1) as bar:
        bar.update()
    assert "playing: 1 paths in 00:00\n" in capsys.readouterr().err


def test_a_changed_description_has_one_colon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SELDOM", 0.0)
    with progress(desc="starting", unit=" paths", miniters=1) as bar:
        bar.set_description("playing")
        bar.update()
    said = capsys.readouterr().err
    assert "playing: 1 paths in 00:00\n" in said
    assert ": :" not in said


def test_on_a_terminal_there_is_a_bar_that_is_gone_in_the_end() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    subprocess.run(
        [sys.executable, "-c", SHORT], stderr=theirs, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert select.select([ours], [], [], 10)[0], "nothing was shown"
    shown = os.read(ours, 10_000).decode()
    os.close(theirs)
    os.close(ours)
    assert "working:" in shown
    assert "3/3" in shown or "0/3" in shown
    assert shown.rstrip(" ").endswith("\r")


@pytest.mark.parametrize("path", sorted((ROOT / "alpamayo_ros").rglob("*.py")), ids=lambda path: path.stem)
def test_nothing_draws_a_bar_of_its_own(path: Path) -> None:
    assert "tqdm(" not in path.read_text() or path.name == "progress.py"
