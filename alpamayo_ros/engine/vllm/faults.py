"""What vLLM and torch raise becomes this package's error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from alpamayo_ros.core.types import AlpamayoError, ConfigurationError, EngineError


@contextmanager
def vllm_faults(device: str) -> Iterator[None]:
    """Say on which device vLLM failed, and how."""
    try:
        yield
    except ConfigurationError as error:
        raise EngineError(str(error)) from error
    except AlpamayoError:
        raise
    except Exception as error:  # vLLM has many kinds
        raise EngineError(f"vLLM failed on {device}: {type(error).__name__}: {error}") from error


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """Say what found no memory, and what to lower."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise EngineError(
            f"no memory is left for {what}: {error}; lower engine.kv_cache_memory or the number of cameras, or use a "
            "device with more memory"
        ) from error
