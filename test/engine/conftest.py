"""One tiny engine for all tests of this folder: an engine has no state that changes an answer."""

from pathlib import Path

import pytest
from tiny_checkpoint import write_tiny_checkpoint

from alpamayo_ros.engine.transformers_engine import TransformersEngine


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def engine(checkpoint: Path) -> TransformersEngine:
    return TransformersEngine.load(str(checkpoint), device="cpu", max_samples=8, max_cameras=2)
