"""`evaluate_bag --ray` gives what the same bags give without, and lists those that fail."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from alpamayo_ros.tools.evaluate_bag import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def processes_find_this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in summary.items() if key not in ("timings_ms", "run")}


@pytest.mark.timeout(240)  # 25 s on a quiet machine
def test_a_local_cluster_gives_the_same_summary_and_lists_what_failed(
    tmp_path: Path, bags: list[Path], rig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make setup, or pip install ray")
    monkeypatch.chdir(tmp_path)  # paths are relative to where the command is given
    command = [*(str(bag.relative_to(tmp_path)) for bag in bags), "--config", rig.name, "--pictures", "1"]
    assert main([*command, "--out", "here", "--jobs", "2"]) == 1
    assert main([*command, "--out", "there", "--ray", "local", "--jobs", "2"]) == 1
    here, there = (json.loads((tmp_path / out / "summary.json").read_text()) for out in ("here", "there"))
    assert without_times(here) == without_times(there)
    assert list(there["failed"]) == ["blind"]
    assert "/camera/front_wide/image/compressed" in (tmp_path / "there" / "blind.log").read_text()
    assert (tmp_path / "there" / "turn" / "report.html").exists()
    assert "failed: blind" in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_named(
    tmp_path: Path, bags: list[Path], rig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make setup, or pip install ray")
    command = [*map(str, bags), "--config", str(rig), "--out", str(tmp_path / "out")]
    assert main([*command, "--ray", "nonsense:://"]) == 1
    assert "there is no Ray cluster at 'nonsense:://'" in capsys.readouterr().err


def test_without_ray_the_error_says_what_to_install(
    tmp_path: Path, bags: list[Path], rig: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    command = [*map(str, bags), "--config", str(rig), "--out", str(tmp_path / "out")]
    assert main([*command, "--ray", "auto"]) == 1
    assert "--ray needs Ray, which is not installed: pip install ray" in capsys.readouterr().err
