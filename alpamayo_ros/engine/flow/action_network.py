"""The expert and its projections as a device computes them best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from alpamayo_ros.model.alpamayo import ActionNetwork, AlpamayoNetwork
from alpamayo_ros.model.expert import Context
from alpamayo_ros.model.geometry import DecoderGeometry


class ExpertFunction(Protocol):
    """`Expert`, or what computes the same."""

    geometry: DecoderGeometry

    def __call__(self, embeddings: Tensor, context: Context) -> Tensor:
        """Hidden states [R G, N, hidden_size] after the final norm."""


@dataclass(frozen=True, eq=False)
class FusedActionNetwork:
    """An `ActionNetwork` for CUDA; its weights are those of the one that it was made from."""

    expert: ExpertFunction
    action_in_proj: Callable[[Tensor, Tensor], Tensor]
    action_out_proj: nn.Linear

    @classmethod
    def of(
        cls, network: ActionNetwork | AlpamayoNetwork, sum_over_ranks: Callable[[Tensor], Tensor] | None = None
    ) -> FusedActionNetwork:
        """Join the weights of the expert's products; `network` keeps working.

        Args:
            network: The plain one, on its device.
            sum_over_ranks: For an expert that is spread over several devices.
        """
        from alpamayo_ros.engine.flow.fused_expert import FusedExpert  # Triton is there where CUDA is

        return cls._around(FusedExpert(network.expert, sum_over_ranks), network)

    @classmethod
    def in_fp8(cls, network: ActionNetwork | AlpamayoNetwork) -> FusedActionNetwork:
        """The same with FP8 layers, which are approximate; the layers are taken out of `network`."""
        from alpamayo_ros.engine.flow.fp8_expert import Fp8Expert  # Triton is there where CUDA is

        return cls._around(Fp8Expert(network.expert), network)

    @classmethod
    def _around(cls, expert: ExpertFunction, network: ActionNetwork | AlpamayoNetwork) -> FusedActionNetwork:
        return cls(expert, torch.compile(network.action_in_proj), network.action_out_proj)
