"""`compare_reports` shows what was run differently and what came of it."""

from pathlib import Path

import pytest
import yaml
from drives import circle, record, straight, write_bag

from alpamayo_ros.tools import compare_reports, evaluate_bag


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations `first`, `second` (another choice of sample) and `other` (another drive)."""
    folder = tmp_path_factory.mktemp("compared")
    rig = folder / "rig.yaml"
    cameras = {"front_wide": {"topic": "/camera/front_wide/image/compressed"}}
    parameters = {"cameras": cameras, "odometry": {"topic": "/odometry"}, "engine": {"kind": "null"}}
    rig.write_text(yaml.safe_dump({"/**": {"ros__parameters": parameters}}))
    turning = write_bag(folder / "turning", record(circle(8.0, 60.0), 50))
    straight_on = write_bag(folder / "straight", record(straight(9.0), 10))
    for name, bag, more in (
        ("first", turning, ["-p", "selection:=first"]),
        ("second", turning, []),
        ("other", straight_on, []),
    ):
        arguments = [
            str(bag),
            "--config",
            str(rig),
            "--out",
            str(folder / name),
            "--samples",
            "3",
            "--pictures",
            "1",
            *more,
        ]
        assert evaluate_bag.main(arguments) == 0
    return folder


def compared(folders: Path, before: str, after: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert compare_reports.main([str(folders / before), str(folders / after)]) == 0
    return capsys.readouterr().out.splitlines()


def row(lines: list[str], name: str) -> str:
    return next(line for line in lines if line.startswith(f"{name} "))


def test_the_same_run_differs_in_nothing(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = compared(folders, "first", "first", capsys)
    assert any("run in the same way" in line for line in lines)
    assert "+0.000 [+0.000, +0.000]  (n = " in row(lines, "ADE@6.4")


def test_a_parameter_and_what_it_does_are_shown(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = compared(folders, "first", "second", capsys)
    assert "  settings: selection: first -> medoid" in lines
    assert "+0.000" in row(lines, "minADE1")  # the samples are the same
    same_choice = row(lines, "ADE@6.4")  # the null engine's medoid is its first sample
    assert "+0.000 [" in same_choice


def test_another_drive_is_said_to_be_one(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = compared(folders, "first", "other", capsys)
    assert any(line.startswith("  bag: path:") for line in lines)
    assert any(line.startswith("  bag: duration_s: 50") for line in lines)


def test_a_folder_without_an_evaluation_is_named(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare_reports.main([str(folders / "first"), str(folders)]) == 1
    assert f"{folders} holds no evaluation" in capsys.readouterr().err
