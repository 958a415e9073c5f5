"""How kernels follow each other: programmatic dependent launch, on GPUs that have it."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret  # TRITON_INTERPRET=1: on the CPU, for tests


@triton.jit
def wait_for_inputs(DEPENDENT: tl.constexpr):
    """Wait until the kernel before has written everything, and let the kernel after start.

    What a kernel loads before this may only be what no kernel of the same stream writes, such as weights, or what those
    before the last one have written (sample_attention.py).
    """
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@cache
def starts_early(device: torch.device) -> bool:
    """Whether a kernel can be launched before the one in front of it has ended (compute capability 9.0)."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def launch_options(device: torch.device) -> dict[str, Any]:
    """Arguments of every launch whose kernel calls `wait_for_inputs`."""
    early = starts_early(device)
    return {"DEPENDENT": early, **({"launch_pdl": True} if early else {})}


@cache
def multiprocessors(device: torch.device) -> int:
    """How many programs run at once at least; some, where Triton interprets on a CPU."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 16


def precision(dtype: torch.dtype) -> str:
    """Of products: three of TF32 make one of float32; other types have no choice."""
    return "tf32x3" if dtype == torch.float32 else "tf32"
