import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.repository import SHIPPED
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.tools.mini_learner import learner_policy
from alpamayo_ros.training import recording
from alpamayo_ros.training.recording import DriveRecorder, Learner, compressed


def test_compressed_pictures_are_almost_the_same(recorded: RecordedDrive) -> None:
    pictures = recorded.images[:2]
    off = np.abs(compressed(pictures).astype(int) - pictures)
    assert 0.2 < off.mean() < 6.0  # the colours swapped would be 30 off
    assert compressed(pictures).shape == pictures.shape


def test_a_recorded_drive_is_kept(mini: ModelConfig, tmp_path: Path) -> None:
    with DriveRecorder(mini, tmp_path, [5], seconds=2.0, workers=1) as recorder:
        first = recorder.get(0)
    (file,) = tmp_path.rglob("*.npz")
    written = file.stat().st_mtime_ns
    with DriveRecorder(mini, tmp_path, [5], seconds=2.0, workers=1) as recorder:
        assert recorder.ready == 1
        again = recorder.get(0)
    assert np.array_equal(first.images, again.images)
    assert np.array_equal(first.actions, again.actions)
    assert (len(first.images), len(first)) == (20, 5)
    assert file.stat().st_mtime_ns == written
    with DriveRecorder(mini, tmp_path, [5], seconds=2.0, workers=1, keep=0) as recorder:
        assert (recorder.ready, recorder.recorded, recorder.pace) == (1, 0, 0.0)
        assert len(recorder.get(0)) == 5
    assert not file.exists()


def test_the_newest_of_those_that_were_read_are_left(mini: ModelConfig, tmp_path: Path) -> None:
    with DriveRecorder(mini, tmp_path, range(4), seconds=1.6, workers=1, keep=1) as recorder:
        for place in range(3):
            recorder.get(place)
        assert recorder.pace > 0
    left = {file.name for file in tmp_path.rglob("*.npz")}
    assert {"drive-2.npz"} <= left <= {"drive-2.npz", "drive-3.npz"}


def test_what_lay_behind_a_gap_is_not_counted_as_recorded(mini: ModelConfig, tmp_path: Path) -> None:
    with DriveRecorder(mini, tmp_path, range(3), seconds=1.6, workers=1) as recorder:
        for place in range(3):
            recorder.get(place)
        assert recorder.recorded == 3
    next(tmp_path.rglob("drive-1.npz")).unlink()
    with DriveRecorder(mini, tmp_path, range(3), seconds=1.6, workers=1) as recorder:
        recorder.get(1)
        assert (recorder.ready, recorder.recorded) == (3, 1)


def test_its_end_waits_for_no_drive(mini: ModelConfig, tmp_path: Path) -> None:
    with DriveRecorder(mini, tmp_path, range(4), seconds=120.0, workers=2):
        assert multiprocessing.active_children()
    assert not multiprocessing.active_children()
    assert not list(tmp_path.rglob("drive-*.npz"))


def test_no_more_is_recorded_than_is_wanted(mini: ModelConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "RECORDED_AHEAD", 1)
    monkeypatch.setattr(recording, "READ_AHEAD", 1)
    with DriveRecorder(mini, tmp_path, range(9), seconds=1.6, workers=1) as recorder:
        recorder.end_at(2)
        assert len(recorder.get(0)) == len(recorder.get(1)) == 1
        assert recorder.ready == 2
    assert {file.name for file in tmp_path.rglob("*.npz")} == {"drive-0.npz", "drive-1.npz"}


def test_a_learner_drives_the_seeds_that_its_share_divides(mini: ModelConfig, tmp_path: Path) -> None:
    learner = Learner(SHIPPED / "mini", every=3, policy=learner_policy)
    with DriveRecorder(mini, tmp_path, [6, 7], seconds=2.6, workers=1, learner=learner) as recorder:
        its, experts = recorder.get(0), recorder.get(1)
    with DriveRecorder(mini, tmp_path / "of the expert", [6, 7], seconds=2.6, workers=1) as recorder:
        assert not np.array_equal(recorder.get(0).histories, its.histories)
        assert np.array_equal(recorder.get(1).histories, experts.histories)
    with DriveRecorder(mini, tmp_path, [6, 7], seconds=2.6, workers=1) as recorder:
        assert recorder.ready == 2
        assert np.array_equal(recorder.get(0).histories, its.histories)  # whoever drove it


def test_a_learner_that_would_never_be_disturbed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="one of 4 drives; it has to be an odd number"):
        Learner(SHIPPED / "mini", every=4, policy=learner_policy)


def test_other_routes_are_recorded_and_lie_apart(mini: ModelConfig, tmp_path: Path) -> None:
    with DriveRecorder(mini, tmp_path, [3], seconds=13.0, workers=1, other_routes=0.5) as recorder:
        others = recorder.get(0)
    with DriveRecorder(mini, tmp_path, [3], seconds=13.0, workers=1) as recorder:
        assert recorder.ready == 0
        own = recorder.get(0)
    assert np.array_equal(own.images, others.images)
    assert (own.navigation != others.navigation).sum() > 5
    assert (own.paths != others.paths).any(axis=(1, 2)).sum() > 5
