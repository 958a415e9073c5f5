"""The expert's numbers with FP8 layers where there are no products in FP8, for tests and for how far they are off."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from alpamayo_ros.engine.fp8 import Fp8Rows
from alpamayo_ros.model.expert import Expert


class SimulatedFp8Linear(nn.Module):
    """A linear layer with FP8 weights, whose input is rounded to FP8, token by token."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self._weight = Fp8Rows.of(weight).numbers(weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """[..., inner] to [..., columns]."""
        rounded = Fp8Rows.of(x.flatten(0, -2)).numbers(x.dtype)
        return functional.linear(rounded, self._weight).unflatten(0, x.shape[:-1])


def simulate_fp8(expert: Expert) -> None:
    """Let the layers of an expert compute with FP8 numbers from now on."""
    for name, module in list(expert.layers.named_modules()):
        if isinstance(module, nn.Linear):
            expert.layers.set_submodule(name, SimulatedFp8Linear(module.weight))
