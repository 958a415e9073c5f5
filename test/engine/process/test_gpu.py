"""What an engine process holds of the device, and that it gives all of it back."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import in_background, wait_until
from tiny_checkpoint import drive

from alpamayo_ros.core.types import EngineError, SamplingOptions
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.process.client import ProcessEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
OPTIONS = SamplingOptions(num_samples=3, max_reasoning_tokens=6)
ENDLESS = SamplingOptions(reasoning="off", flow_steps=10**9)
ROUND = 4  # MB


def used_mb() -> int:
    """Memory of the device in use, by all processes."""
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return sum(map(int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()))


@pytest.mark.parametrize("how", ["idle", "at work", "killed"])
def test_the_devices_memory_is_free_when_the_process_is_gone(
    start: Callable[..., ProcessEngine], checkpoint: Path, how: str
) -> None:
    before = used_mb()
    engine = start("transformers", str(checkpoint), device="cuda")
    engine.warm_up()
    held = engine.health.device_memory_bytes
    assert held > 0
    assert used_mb() - before > held / 1e6
    if how != "idle":
        endless = in_background(lambda: engine.predict(drive(), ENDLESS))
        wait_until(lambda: bool(engine._supervisor._requests))
    if how == "killed":
        os.kill(engine.health.pid, signal.SIGKILL)
        with pytest.raises(EngineError, match="was killed by SIGKILL"):
            endless.result(30)
        engine.wait_until_ready()
        assert engine.predict(drive(), OPTIONS).num_samples == 3
    engine.close()
    assert engine.health.device_memory_bytes == 0
    assert abs(used_mb() - before) <= ROUND


def test_predictions_on_the_device_are_the_same_to_the_last_bit(
    start: Callable[..., ProcessEngine], checkpoint: Path
) -> None:
    there = start("transformers", str(checkpoint), device="cuda").predict(drive(), OPTIONS)
    here = create_engine("transformers", str(checkpoint), device="cuda", max_cameras=2)
    np.testing.assert_array_equal(here.predict(drive(), OPTIONS).xyz, there.xyz)
    here.close()
