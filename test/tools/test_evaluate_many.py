"""Several bags run beside each other; one that fails doesn't stop the others, and the same command runs it again."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from drives import record, straight, write_bag
from pages import Page

from alpamayo_ros.tools.evaluate_bag import main

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def processes_find_this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))


def arguments(bags: list[Path], rig: Path, out: Path, *more: str) -> list[str]:
    return [*map(str, bags), "--config", str(rig), "--out", str(out), "--jobs", "2", "--pictures", "1", *more]


def summary_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


def test_results_of_each_and_figures_of_all(
    tmp_path: Path, bags: list[Path], rig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(arguments(bags[:2], rig, out)) == 0
    assert sorted(file.name for file in out.iterdir()) == ["straight", "summary.html", "summary.json", "turn"]
    summary = summary_of(out)
    reports = [json.loads((out / name / "report.json").read_text()) for name in ("straight", "turn")]
    for count in ("total", "ok", "skipped", "with_full_future"):
        assert summary["ticks"][count] == sum(report["ticks"][count] for report in reports)
    figures = [report["metrics"]["chosen"]["ade"]["2.0"] for report in reports]
    mean = sum(each["n"] * each["mean"] for each in figures) / sum(each["n"] for each in figures)
    assert summary["metrics"]["chosen"]["ade"]["2.0"]["mean"] == pytest.approx(mean)
    assert (summary["state"], summary["failed"]) == ("done", {})
    page = Page((out / "summary.html").read_text())
    assert [address for address in page.addresses if not address.startswith("data:")] == [
        "straight/report.html",
        "turn/report.html",
    ]
    ade = summary["bags"]["turn"]["metrics"]["chosen"]["ade"]["6.4"]["mean"]
    assert page.row("turn")[3] == f"{ade:.2f}"
    assert f"{summary['metrics']['chosen']['ade']['6.4']['mean']:.2f}" in page.rows_of("chosen path")[0]
    said = capsys.readouterr().out
    assert "open-loop" in said
    assert "turn" in said


def test_a_bag_that_fails_is_listed_and_run_again_alone(
    tmp_path: Path, bags: list[Path], rig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(arguments(bags, rig, out)) == 1
    assert list(summary_of(out)["failed"]) == ["blind"]
    assert "/camera/front_wide/image/compressed" in (out / "blind.log").read_text()
    assert "failed: blind" in capsys.readouterr().err
    page = Page((out / "summary.html").read_text())
    assert "blind.log" in page.addresses
    assert "Failed:" in page.text
    written = [(out / name / "report.json").stat().st_mtime_ns for name in ("straight", "turn")]

    shutil.rmtree(bags[2])
    write_bag(bags[2], record(straight(5.0), 10))  # the camera is plugged in
    assert main(arguments(bags, rig, out)) == 0
    assert summary_of(out)["failed"] == {}
    assert summary_of(out)["bags"]["blind"]["ticks"]["ok"] > 0
    assert [(out / name / "report.json").stat().st_mtime_ns for name in ("straight", "turn")] == written
    assert not (out / "blind.log").exists()


def test_finished_results_are_replaced_only_on_request(
    tmp_path: Path, bags: list[Path], rig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(arguments(bags[:2], rig, out)) == 0
    assert main(arguments(bags[:2], rig, out)) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main(arguments(bags[:2], rig, out, "--overwrite")) == 0


def test_limits_are_for_all_of_them(tmp_path: Path, bags: list[Path], rig: Path) -> None:
    assert main(arguments(bags[:2], rig, tmp_path / "out", "--fail-above", "ADE@6.4=0.001")) == 3


@pytest.mark.parametrize("taken", [True, False])
def test_wrong_input_is_named_before_anything_runs(
    tmp_path: Path, bags: list[Path], rig: Path, capsys: pytest.CaptureFixture[str], taken: bool
) -> None:
    out = tmp_path / "out"
    if taken:
        out.mkdir()
        (out / "precious").touch()
        assert main(arguments(bags, rig, out)) == 1
        assert "holds no evaluations" in capsys.readouterr().err
        assert [file.name for file in out.iterdir()] == ["precious"]
    else:
        again = tmp_path / "other" / "turn"
        shutil.copytree(bags[1], again)
        assert main(arguments([*bags, again], rig, out)) == 1
        assert "have the same name" in capsys.readouterr().err
        assert not out.exists()


def test_ctrl_c_ends_every_process_and_the_same_command_goes_on(tmp_path: Path, rig: Path) -> None:
    bags = [write_bag(tmp_path / "bags" / name, record(straight(9.0), 20)) for name in ("a", "b")]
    out = tmp_path / "out"
    command = arguments(bags, rig, out, "--stride", "0.1")
    with subprocess.Popen([sys.executable, "-m", "alpamayo_ros.tools.evaluate_bag", *command], cwd=ROOT) as process:
        given_up = time.monotonic() + 60
        while len(list(out.glob(".*.unfinished/*.npz"))) < 10 and time.monotonic() < given_up:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    kept = len(list(out.glob(".*.unfinished/*.npz")))
    time.sleep(0.5)
    assert len(list(out.glob(".*.unfinished/*.npz"))) == kept >= 10  # nobody writes any more
    assert main(command) == 0
    assert set(summary_of(out)["bags"]) == {"a", "b"}
    assert not list(out.glob(".*.unfinished"))
