"""A native engine and its reference on the tiny checkpoint, in float32 on a CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.engine.transformers_engine import TransformersEngine


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> TransformersEngine:
    return TransformersEngine.load(str(checkpoint), device="cpu", max_samples=4, max_cameras=4)


@pytest.fixture(scope="session")
def native(checkpoint: Path) -> NativeEngine:
    return NativeEngine.load(str(checkpoint), device="cpu", max_samples=4, max_cameras=4)
