"""How long each stage of a prediction takes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class StageClock:
    """Adds up milliseconds by stage; on a CUDA device those that its work takes there, and nobody waits for them.

    A stage is what stands between two events on its thread's current stream: it begins when the device has done what
    was queued before, or when its work is queued, whichever is later. So the device never idles for the sake of the
    clock.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stages_ms: dict[str, float] = {}
        self._on_device: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []  # not added up yet

    @property
    def stages_ms(self) -> dict[str, float]:
        """So far, in the order in which the stages began; it waits until the device has done them."""
        for name, begin, end in self._on_device:
            end.synchronize()
            self._stages_ms[name] += begin.elapsed_time(end)
        self._on_device.clear()
        return self._stages_ms

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is inside, as long as the device takes for it."""
        if self._device.type != "cuda":
            with self.host_stage(name):
                yield
            return
        self._stages_ms.setdefault(name, 0.0)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        yield
        end.record()
        self._on_device.append((name, begin, end))

    @contextmanager
    def host_stage(self, name: str) -> Iterator[None]:
        """Measure what is inside on the host, and wait for no device."""
        self._stages_ms.setdefault(name, 0.0)
        started = time.monotonic()
        yield
        self.add(name, time.monotonic() - started)

    def add(self, name: str, seconds: float) -> None:
        """Note time that was measured elsewhere."""
        self._stages_ms[name] = self._stages_ms.get(name, 0.0) + seconds * 1e3
