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

    What a kernel loads before this may only be what no kernel of the same stream writes, such as weights.
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


@triton.jit
def prefetch_rows(start, stride, ROWS: tl.constexpr, BYTES: tl.constexpr):
    """Ask for weights ahead of `wait_for_inputs`, so that memory isn't idle while the kernel before ends.

    Args:
        start: Pointer to the first row.
        stride: Of rows, in elements.
        ROWS: A power of two.
        BYTES: Of each row; a multiple of 64.
    """
    PIECES: tl.constexpr = 4
    piece = tl.arange(0, ROWS * PIECES)
    step: tl.constexpr = BYTES // PIECES
    prefetch((start + (piece // PIECES).to(tl.int64) * stride).to(tl.int64) + (piece % PIECES) * step, step)


@triton.jit
def prefetch(addresses, BYTES: tl.constexpr):
    """Bring memory into the L2 cache.

    Args:
        addresses: [n] int64, multiples of 16.
        BYTES: Behind each; a multiple of 16.
    """
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;",
        "=r,l,r",
        [addresses, tl.full(addresses.shape, BYTES, tl.int32)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
