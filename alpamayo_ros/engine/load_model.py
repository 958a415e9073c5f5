"""Reads a checkpoint onto a device, for the engines that keep the model in this process."""

from __future__ import annotations

import torch

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.base import LoadOptions
from alpamayo_ros.engine.device import limit_threads, resolve_device, resolve_dtype
from alpamayo_ros.model.alpamayo import AlpamayoModel
from alpamayo_ros.model.config import ModelConfig


def load_model(checkpoint: str, wanted: LoadOptions) -> AlpamayoModel:
    """The model of a folder or Hugging Face name.

    Raises:
        ConfigurationError: a checkpoint that can't be used.
        EngineError: a device that isn't there, or has too little memory.
    """
    device = resolve_device(wanted.device)
    dtype = resolve_dtype(wanted.dtype, device)
    config = ModelConfig.load(checkpoint, wanted.base_model)
    try:
        model = AlpamayoModel.load(config, device, dtype, wanted.bf16_constants)
    except torch.OutOfMemoryError as error:
        raise EngineError(f"{checkpoint} doesn't fit into the memory of {device}: {error}") from error
    limit_threads(device, model.parameters)
    return model
