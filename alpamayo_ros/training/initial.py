"""The weights that training starts from."""

from __future__ import annotations

import math
import re

import torch
from torch import Tensor, nn

from alpamayo_ros.model.alpamayo import AlpamayoNetwork
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.vocabulary import Vocabulary

EMBEDDING_SCALE = 0.5  # of a token, beside images of scale 1
POSITION_SCALE = 0.3  # of the vision tower's positions
OUTPUT_SCALE = 0.1  # of what the network says at first: nothing much
RESIDUAL_ENDS = ("o_proj.weight", "down_proj.weight", "attn.proj.weight", "mlp.linear_fc2.weight")
HISTORY_WAVES = 16  # sines over the bins of the ego history


def initial_network(config: ModelConfig, vocabulary: Vocabulary, seed: int) -> AlpamayoNetwork:
    """A network in float32 on the CPU, ready to be trained; the same for the same seed.

    Every layer keeps the scale of what it is given, and the last of a residual branch is smaller, by the number of
    branches. High frequencies of the flow's input are damped, as are the outputs. Neighbouring bins of the ego history
    start with neighbouring embeddings, so that speeds need not be learned bin by bin.
    """
    network = AlpamayoNetwork(config, bf16_constants=True)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            _fill(name, parameter, network, generator)
        rows = vocabulary.history_ids
        table = network.get_parameter("vlm.model.language_model.embed_tokens.weight")
        table[rows.start : rows.stop] = _ordered_rows(len(rows), table.shape[1], generator)
    return network


def _fill(name: str, parameter: nn.Parameter, network: AlpamayoNetwork, generator: torch.Generator) -> None:
    if name.endswith("bias"):
        parameter.zero_()
    elif parameter.ndim == 1:
        parameter.fill_(1.0)
    else:
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(noise * _scale(name, parameter, network))


def _scale(name: str, parameter: nn.Parameter, network: AlpamayoNetwork) -> Tensor | float:
    fan_in = math.prod(parameter.shape[1:])
    if name == "action_in_proj.encoder.trunk.0.weight":
        frequencies = network.action_in_proj.frequencies.clamp(min=1.0)
        return 1 / (math.sqrt(fan_in) * frequencies.repeat(fan_in // len(frequencies)))
    if name.endswith("embed_tokens.weight"):
        return EMBEDDING_SCALE
    if name.endswith("pos_embed.weight"):
        return POSITION_SCALE
    if name.endswith(("lm_head.weight", "action_out_proj.weight")):
        return OUTPUT_SCALE / math.sqrt(fan_in)
    if name.endswith(RESIDUAL_ENDS) and "merger" not in name:
        return 1 / math.sqrt(fan_in * 2 * _layers(name, network))
    return 1 / math.sqrt(fan_in)


def _layers(name: str, network: AlpamayoNetwork) -> int:
    """How many layers the stack of this weight has; each has two residual branches."""
    stack = name[: re.search(r"\.(layers|blocks)\.", name).end() - 1]  # type: ignore[union-attr]
    return sum(1 for _ in network.get_submodule(stack).children())


def _ordered_rows(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Rows [count, size] of scale EMBEDDING_SCALE that change slowly from one to the next."""
    place = torch.linspace(0, 1, count)[:, None]
    octaves = 2.0 ** torch.linspace(-1, math.log2(count / 8), HISTORY_WAVES)
    phases = torch.rand(HISTORY_WAVES, generator=generator)
    waves = math.sqrt(2) * torch.sin(2 * math.pi * (place * octaves + phases))
    mix = torch.randn(HISTORY_WAVES, size, generator=generator) / octaves.sqrt()[:, None]
    rows = waves @ mix
    return rows * (EMBEDDING_SCALE / rows.std())
