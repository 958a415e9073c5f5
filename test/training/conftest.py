import pytest

from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim.recorded_drive import RecordedDrive, record_drive
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.make_checkpoint import make_checkpoint


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """The small checkpoint's sizes, with random weights."""
    folder = tmp_path_factory.mktemp("mini") / "random"
    make_checkpoint(PRESETS["mini"], folder, seed=0)
    return ModelConfig.load(folder)


@pytest.fixture(scope="session")
def recorded() -> RecordedDrive:
    return record_drive(1, 3.0)
