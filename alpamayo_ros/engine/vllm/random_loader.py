"""Fills the backbone in vLLM at random where a checkpoint has a seed in place of files (model/random_weights.py)."""

from __future__ import annotations

from typing import Any

from torch import nn
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.base_loader import BaseModelLoader

from alpamayo_ros.model.alpamayo import make_network_on_meta
from alpamayo_ros.model.random_weights import random_tensors

RANDOM_WEIGHTS = "alpamayo_random"  # vLLM's `load_format`
CONFIG = "config"  # in its `model_loader_extra_config`: the ModelConfig


@register_model_loader(RANDOM_WEIGHTS)
class RandomWeightsLoader(BaseModelLoader):
    """The same numbers as the transformers engine has on the same kind of device."""

    def download_model(self, model_config: Any) -> None:
        """There are no files."""

    def load_weights(self, model: nn.Module, model_config: Any) -> None:
        """Draw them one after the other, the expert's included, which the model passes over."""
        config = self.load_config.model_loader_extra_config[CONFIG]
        device = next(model.parameters()).device
        load: Any = model.load_weights
        load(random_tensors(make_network_on_meta(config), config.random_seed, device))
