"""The demo's parts that take no minute: what it evaluates beside the drive, and what it says at its end."""

from pathlib import Path

import pytest

from alpamayo_ros.tools import demo


def test_without_a_recorded_drive_there_is_no_report_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DRIVES", tmp_path / "nowhere")
    assert demo.evaluate_recorded(tmp_path) is None


def test_the_small_model_is_evaluated_on_a_drive_of_its_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(demo, "RECORDED_SECONDS", 9.0)
    monkeypatch.setattr(demo, "STRIDE", 3.0)
    report = demo.evaluate_synthetic(tmp_path)
    assert (report / "report.html").is_file()
    assert "m off over 6.4 s, the best baseline" in demo.scores(report)
    assert "synthetic_drive" in capfd.readouterr().out
    assert demo.evaluate_synthetic(tmp_path) == report  # whose bag is there already
    assert "synthetic_drive" not in capfd.readouterr().out
