from pathlib import Path

import numpy as np

from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.training.recording import DriveRecorder, compressed


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
