"""Random weights for a network of any size: for demos, for tests, and to measure at full size without NVIDIA's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alpamayo_ros.model.checkpoint import set_parameter

if TYPE_CHECKING:
    from alpamayo_ros.model.alpamayo import AlpamayoNetwork

BLOCK = 1 << 26  # numbers that are drawn at a time, so that float32 noise needs 256 MB and not twice the tensor


def random_tensors(
    network: AlpamayoNetwork, seed: int, device: torch.device | None = None
) -> Iterator[tuple[str, Tensor]]:
    """Every parameter by its name, one after the other, in bfloat16.

    The weights have a scale that keeps every activation near 1. The projection's first layer is damped for high
    frequencies, and the output small: with plain random weights a change of 1e-6 in the noise would grow to metres over
    ten steps.

    Args:
        network: Tells names and shapes; it may be on the meta device.
        seed: Gives the same numbers again on the same kind of device.
        device: Where the tensors are made and lie; the CPU when not given.
    """
    device = device or torch.device("cpu")
    generator = torch.Generator(device).manual_seed(seed)
    for name, parameter in network.named_parameters():
        shape = parameter.shape
        if name.endswith("bias"):
            yield name, torch.zeros(shape, dtype=torch.bfloat16, device=device)
        elif parameter.ndim == 1:
            yield name, torch.ones(shape, dtype=torch.bfloat16, device=device)
        else:
            yield name, _normal(shape, _scale(name, network).to(device), generator)


def fill_at_random(network: AlpamayoNetwork, seed: int, device: torch.device, dtype: torch.dtype) -> None:
    """Give every parameter of a network on the meta device random values; they are those of `random_tensors`."""
    for name, tensor in random_tensors(network, seed, device):
        set_parameter(network, name, tensor.to(dtype))


def _scale(name: str, network: AlpamayoNetwork) -> Tensor:
    """The standard deviation of a weight: a number, or one per column."""
    if name == "action_in_proj.encoder.trunk.0.weight":
        frequencies = network.action_in_proj.frequencies
        columns = network.get_parameter(name).shape[1]
        return 1 / (2 * math.sqrt(columns) * frequencies.repeat(columns // len(frequencies)))
    fan_in = math.prod(network.get_parameter(name).shape[1:])
    scale = 1.0 if "embed" in name else 1 / math.sqrt(fan_in)
    return torch.tensor(0.3 * scale if name == "action_out_proj.weight" else scale)


def _normal(shape: torch.Size, scale: Tensor, generator: torch.Generator) -> Tensor:
    """Normally distributed numbers in bfloat16, drawn in float32 a few rows at a time."""
    tensor = torch.empty(shape, dtype=torch.bfloat16, device=generator.device)
    rows = max(1, BLOCK // math.prod(shape[1:]))
    for part in tensor.split(rows):
        part.copy_(torch.randn(part.shape, generator=generator, device=generator.device) * scale)
    return tensor
