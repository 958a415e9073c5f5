"""The demo's parts that no other test runs: what it plays where no recorded drive is."""

from pathlib import Path

import pytest

from alpamayo_ros.tools import demo, evaluate_bag


def test_without_a_recorded_drive_its_own_fits_the_rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "DRIVES", tmp_path / "nowhere")
    monkeypatch.setattr(demo, "SYNTHETIC_SECONDS", 3.0)
    bag, rig, what = demo.recorded_drive(tmp_path)
    assert "synthetic" in what
    arguments = [str(bag), "--config", str(rig), "--engine", "null", "--out", str(tmp_path / "report")]
    assert evaluate_bag.main(arguments) == 0
    assert demo.recorded_drive(tmp_path) == (bag, rig, what)  # and does nothing twice
