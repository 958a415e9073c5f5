"""What vLLM and torch raise becomes this package's error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
