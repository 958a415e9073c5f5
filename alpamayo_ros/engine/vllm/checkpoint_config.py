"""NVIDIA's checkpoint folder for vLLM: its config.json becomes a Qwen3-VL config that names our model class."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig
from vllm.transformers_utils.config_parser_base import ConfigParserBase

from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import ImageConfig

ARCHITECTURE = "AlpamayoForConditionalGeneration"
CONFIG_FORMAT = "alpamayo"  # vLLM's `config_format`


def vllm_config(config: ModelConfig) -> Qwen3VLConfig:
    """The backbone's config with the resized vocabulary, and beside it what the model plugin has to know."""
    content: dict[str, Any] = {**config.backbone.json, "architectures": [ARCHITECTURE]}
    vocabulary = config.vocabulary
    first = vocabulary.traj_token_start_idx
    content["alpamayo"] = {
        "images": asdict(config.images),
        "trajectory_ids": [first, first + vocabulary.traj_vocab_size],
    }
    return Qwen3VLConfig(**content)


def image_config(config: Qwen3VLConfig) -> ImageConfig:
    """How images are prepared, out of such a config."""
    values = dict(config.alpamayo["images"])
    for key in ("image_mean", "image_std"):
        values[key] = tuple(values[key])
    return ImageConfig(**values)


def feature_bytes(config: Qwen3VLConfig, dtype: torch.dtype) -> int:
    """Of an image's token: its embedding, and what is added to the first layers' outputs."""
    vision: Any = config.vision_config
    return int(vision.out_hidden_size) * (1 + len(vision.deepstack_visual_indexes)) * dtype.itemsize


def trajectory_ids(config: Qwen3VLConfig) -> range:
    """The ids of `<i*>`, which are never written as reasoning."""
    return range(*config.alpamayo["trajectory_ids"])


class CheckpointConfigParser(ConfigParserBase):
    """Reads config.json of a checkpoint folder; registered under CONFIG_FORMAT."""

    loaded: ClassVar[ModelConfig | None] = None  # set by who has read that folder already, as he wants it

    def parse(self, model: str | Path, *_: Any, **__: Any) -> tuple[dict[str, Any], Qwen3VLConfig]:
        """The config as a dict and as transformers' object."""
        known = self.loaded
        config = vllm_config(known if known and known.folder == Path(model) else ModelConfig.load(model))
        return config.to_dict(), config
