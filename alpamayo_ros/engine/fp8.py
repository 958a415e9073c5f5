"""Matrices in FP8 (E4M3, 8 bits: sign, 4 of exponent, 3 of fraction) with one float32 scale for each of their rows.

A row's scale takes its largest value to the largest that E4M3 has. Rows of weights are output channels, rows of
activations are tokens: so a product of both is the product of the FP8 values times the two scales of its place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.core.types import ConfigurationError

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # finite value of E4M3
SMALLEST_SCALE = 1e-12  # of a row of zeros
LEAST_CAPABILITY = (8, 9)  # GPUs with products in FP8: Ada, Hopper and later


@dataclass(frozen=True, eq=False)
class Fp8Rows:
    """A matrix, row by row."""

    values: Tensor  # [rows, columns] float8_e4m3fn
    scales: Tensor  # [rows, 1] float32: a number of the matrix is its value times this

    @classmethod
    def of(cls, matrix: Tensor) -> Fp8Rows:
        """The nearest FP8 values to a matrix [rows, columns]."""
        wide = matrix.detach().float()
        scales = (wide.abs().amax(-1, keepdim=True) / LARGEST).clamp(min=SMALLEST_SCALE)
        return cls((wide / scales).to(FP8), scales)

    def numbers(self, dtype: torch.dtype) -> Tensor:
        """What it stands for, [rows, columns]."""
        return (self.values.float() * self.scales).to(dtype)


def check_fp8(device: torch.device, dtype: torch.dtype) -> None:
    """Raise where products in FP8 can't be computed; a CPU simulates them.

    Raises:
        ConfigurationError: names the device or the type, and what would be right.
    """
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        raise ConfigurationError(
            f"engine.quantization is 'fp8'; {torch.cuda.get_device_name(device)} has compute capability "
            f"{capability[0]}.{capability[1]} and no products in FP8, which take 8.9 or more (Ada, Hopper); set it to "
            "none"
        )
    if dtype != torch.bfloat16:
        raise ConfigurationError(
            f"engine.quantization is 'fp8' and the weights' type {str(dtype).removeprefix('torch.')}; on CUDA FP8 "
            "layers go with bfloat16: let engine.dtype be auto or bfloat16"
        )
