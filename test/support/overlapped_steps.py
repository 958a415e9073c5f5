"""vLLM's asynchronous scheduling, on or off as a test wants it, on any device.

With it vLLM schedules a step while the one before runs. It is vLLM's default on CUDA. vLLM turns it off on a CPU, where
scheduler and engine can do it all the same; what stands in for CUDA's streams there has nothing to wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from alpamayo_ros.engine.vllm.startup import set_environment

OTHER_SCHEDULING = "other_scheduling"  # than the device's default: asynchronous on a CPU, synchronous on CUDA


class _Done:
    """An event or a stream of a device that finishes everything at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, _stream: Any) -> None: ...


@contextmanager
def overlapped_steps(overlapped: bool) -> Iterator[None]:
    """Engines that are made while this is open schedule so."""
    set_environment()
    from vllm.engine.arg_utils import EngineArgs

    create = EngineArgs.create_engine_config

    def asked(self: Any, *arguments: Any, **more: Any) -> Any:
        self.async_scheduling = overlapped
        return create(self, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EngineArgs, "create_engine_config", asked)
        # writes the input of a step that failed into a string, which takes longer than the tests
        patch.setattr("vllm.v1.engine.core.dump_engine_exception", lambda *_: None)
        if overlapped and not torch.cuda.is_available():
            _allow_on_cpu(patch)
        yield


def _allow_on_cpu(patch: pytest.MonkeyPatch) -> None:
    from vllm.platforms.cpu import CpuPlatform

    adjust = CpuPlatform.check_and_update_config

    def adjust_but_for_this(config: Any) -> None:
        adjust(config)
        config.scheduler_config.async_scheduling = True

    patch.setattr(CpuPlatform, "check_and_update_config", staticmethod(adjust_but_for_this))
    patch.setattr(torch.cuda, "Event", _Done)
    patch.setattr(torch.cuda, "current_stream", _Done)
    patch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())
