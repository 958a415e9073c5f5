"""A flow of a shape that no graph was captured for is made for its tick, and goes with it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from tiny_checkpoint import drive

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.flow.flow_runner import FlowRunner
from alpamayo_ros.engine.native.engine import NativeEngine


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("collector_off")
def test_nothing_of_it_waits_for_the_garbage_collector(native: NativeEngine) -> None:
    """It holds an expert and memory of the device, which Python's collector doesn't know the size of."""
    before = [each for each in gc.get_objects() if isinstance(each, FlowRunner)]
    native.predict(drive(), SamplingOptions(max_reasoning_tokens=2, num_samples=2))
    after = [each for each in gc.get_objects() if isinstance(each, FlowRunner)]
    assert len(after) == len(before)
