"""The expert over several ranks: each has some heads of the attention and some columns of the MLP."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from vllm.distributed import tensor_model_parallel_all_reduce
from vllm.distributed.parallel_state import graph_capture

from alpamayo_ros.model.expert import Expert, ExpertLayer


def sum_over_ranks(part: Tensor) -> Tensor:
    """The sum of every rank's part."""
    return tensor_model_parallel_all_reduce(part)


def capturing(device: torch.device) -> AbstractContextManager[object]:
    """Around the capture of graphs that sum over ranks, in all ranks at once.

    At the end every rank learns where the others' graphs have their parts; without it a replay reads memory of nobody.
    """
    return graph_capture(device)


class SummedOverRanks(nn.Module):
    """A Linear without bias whose input columns are spread over the ranks."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._linear = linear

    @property
    def weight(self) -> Tensor:
        """This rank's columns."""
        return self._linear.weight

    def forward(self, states: Tensor) -> Tensor:
        """Each rank's part, added up."""
        return sum_over_ranks(self._linear(states))


def keep_shard(expert: Expert, rank: int, ranks: int) -> None:
    """Cut a loaded expert down to one rank's part."""
    for layer in expert.layers:
        assert isinstance(layer, ExpertLayer)
        attention, mlp = layer.self_attn, layer.mlp
        attention.heads //= ranks
        attention.kv_heads //= ranks
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj, mlp.gate_proj, mlp.up_proj):
            _keep(linear, 0, rank, ranks)
        for linear in (attention.o_proj, mlp.down_proj):
            _keep(linear, 1, rank, ranks)
        attention.add_module("o_proj", SummedOverRanks(attention.o_proj))
        mlp.add_module("down_proj", SummedOverRanks(mlp.down_proj))


def _keep(linear: nn.Linear, dimension: int, rank: int, ranks: int) -> None:
    linear.weight = nn.Parameter(linear.weight.chunk(ranks, dimension)[rank].clone(), requires_grad=False)
