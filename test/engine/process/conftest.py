from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.process.client import ProcessEngine


@pytest.fixture
def start() -> Iterator[Callable[..., ProcessEngine]]:
    """Starts engines in processes of their own, and closes them afterwards."""
    engines: list[ProcessEngine] = []

    def make(kind: str = "null", checkpoint: str = "", **options: Any) -> ProcessEngine:
        engine = create_engine(kind, checkpoint, **{"max_cameras": 2, "process": "subprocess", **options})
        assert isinstance(engine, ProcessEngine)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()
