"""How long each stage of a prediction takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StageClock:
    """Adds up milliseconds by stage; on a CUDA device a stage waits for the work that it queued.

    It waits for its thread's current stream alone: another thread's work is not its own, and a device mustn't be waited
    for while another thread captures a graph.
    """

    def __init__(self, device: torch.device) -> None:
        self.stages_ms: dict[str, float] = {}
        self._device = device

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is inside."""
        started = time.monotonic()
        yield
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self.add(name, time.monotonic() - started)

    @contextmanager
    def host_stage(self, name: str) -> Iterator[None]:
        """Measure what is inside, and wait for no device."""
        started = time.monotonic()
        yield
        self.add(name, time.monotonic() - started)

    def add(self, name: str, seconds: float) -> None:
        """Note time that was measured elsewhere."""
        self.stages_ms[name] = self.stages_ms.get(name, 0.0) + seconds * 1e3
