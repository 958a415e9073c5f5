"""Triton's kernels on a CPU, interpreted; on a machine with a GPU the same tests compile them.

Triton decides that when it is first imported, and vLLM for the CPU stumbles over it: so these tests have a process of
their own (`make test-kernels`, part of `make test`), and are skipped in others.
"""

from __future__ import annotations

import os

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def triton_runs_here() -> None:
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("needs a CUDA device, or TRITON_INTERPRET=1")


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def hopper(device: torch.device) -> torch.device:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        pytest.skip("needs a Hopper GPU (compute capability 9.0)")
    return device


@pytest.fixture(params=[torch.float32, torch.float16, torch.bfloat16], ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    if request.param == torch.bfloat16 and not torch.cuda.is_available():
        pytest.skip("Triton's interpreter has no products of bfloat16")
    return request.param
