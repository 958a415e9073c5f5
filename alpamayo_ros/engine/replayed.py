"""Work that is recorded once and replayed: a CUDA graph over static buffers, or on a CPU the work itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import torch

GraphMemory = Any  # what torch.cuda.graph_pool_handle() gives; its type has no public name
Result = TypeVar("Result")
WARM_UP_RUNS = 2  # what is compiled or tuned on first use mustn't be recorded


@lru_cache
def _common_stream(device: int) -> torch.cuda.Stream:
    """One: PyTorch has 32 streams of a kind and then gives the same ones again, which others would have by then."""
    return torch.cuda.Stream(device)


class Replayed(Generic[Result]):
    """A function without arguments that reads static buffers. What it returns is overwritten by the next call.

    The function is handed over each time: kept here, a bound method and its object would hold each other, and with them
    the device's memory until the garbage collector comes by.
    """

    def __init__(self) -> None:
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Result

    def capture(self, work: Callable[[], Result], memory: GraphMemory, stream: torch.cuda.Stream | None = None) -> None:
        """Record it; from then on a call replays it.

        Args:
            work: The function.
            memory: That graphs share. Each may overwrite what another has returned.
            stream: To record on; its own for graphs that are replayed side by side with others, since cuBLAS has
                scratch memory for every stream. None: the one of all graphs that are replayed one after the other.
        """
        stream = stream or _common_stream(torch.cuda.current_device())
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_RUNS):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        # thread_local: other threads may use CUDA meanwhile
        with torch.cuda.graph(self._graph, pool=memory, stream=stream, capture_error_mode="thread_local"):
            self._result = work()

    def __call__(self, work: Callable[[], Result]) -> Result:
        """Do the work: the recorded one, or else this, which is the same."""
        if self._graph is None:
            return work()
        self._graph.replay()
        return self._result
