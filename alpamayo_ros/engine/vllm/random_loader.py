"""Random weights for a checkpoint that has only shapes: the same that the transformers engine makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from vllm.config import ModelConfig as VllmModelConfig
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from alpamayo_ros.model.alpamayo import ActionNetwork, make_network_on_meta
from alpamayo_ros.model.checkpoint import set_parameter
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.random_weights import random_tensors

LOAD_FORMAT = "alpamayo_random"
CONFIG = "config"  # in `model_loader_extra_config`: the ModelConfig, which reaches the workers that way
BACKBONE = "vlm."


@register_model_loader(LOAD_FORMAT)
class RandomLoader(BaseModelLoader):
    """Gives vLLM's model the backbone's part of the random weights."""

    def download_model(self, model_config: VllmModelConfig) -> None:
        """Nothing to download."""

    def load_weights(self, model: Any, model_config: VllmModelConfig) -> None:
        """Make every tensor on the model's device, one after the other."""
        config: ModelConfig = self.load_config.model_loader_extra_config[CONFIG]
        device = next(iter(model.parameters())).device
        tensors = _all_tensors(config, device, bf16_constants=True)
        model.load_weights((name, tensor) for name, tensor in tensors if name.startswith(BACKBONE))


def fill_action_network(
    network: ActionNetwork, config: ModelConfig, bf16_constants: bool, device: torch.device, dtype: torch.dtype
) -> None:
    """Give the action expert its part of the random weights."""
    for name, tensor in _all_tensors(config, device, bf16_constants):
        if not name.startswith(BACKBONE):
            set_parameter(network, name, tensor.to(dtype))


def _all_tensors(config: ModelConfig, device: torch.device, bf16_constants: bool) -> Iterator[tuple[str, Tensor]]:
    assert config.random_seed is not None
    return random_tensors(make_network_on_meta(config, bf16_constants), config.random_seed, device)
