"""The whole network: backbone, expert and the two projections, under NVIDIA's names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from torch import Tensor, nn

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.action_projection import ActionProjection
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.expert import Expert, ExpertGeometry, ExpertMemory


class Alpamayo(nn.Module):
    """`vlm` (transformers' Qwen3-VL), `expert`, `action_in_proj` and `action_out_proj`.

    Built without memory for its parameters (on the meta device); a checkpoint brings them.
    """

    def __init__(self, config: ModelConfig, bf16_constants: bool = True) -> None:
        super().__init__()
        from transformers import Qwen3VLForConditionalGeneration

        geometry = expert_geometry(config)
        with parameters_on_meta():
            self.vlm = Qwen3VLForConditionalGeneration(backbone_config(config))
            self.expert = Expert(geometry)
            self.action_in_proj = ActionProjection(
                config.action_projection,
                geometry.hidden_size,
                bf16_constants=bf16_constants,
                upcast_inputs=config.model_type == "alpamayo_r1",
            )
            self.action_out_proj = nn.Linear(geometry.hidden_size, 2)
        self.eval()

    def velocity(self, actions: Tensor, times: Tensor, memory: ExpertMemory) -> Tensor:
        """The flow's velocity [S, N, 2] for noisy actions [S, N, 2] at times [S, 1, 1], given what the backbone saw."""
        embeddings = self.action_in_proj(actions, times)
        hidden = self.expert(embeddings.to(self.action_out_proj.weight.dtype), memory)
        return self.action_out_proj(hidden)


def expert_geometry(config: ModelConfig) -> ExpertGeometry:
    """The expert's sizes: its own from config.json, the rest from the backbone.

    Raises:
        ConfigurationError: a head_dim that isn't the backbone's, whose keys the expert reads.
    """
    text = config.backbone["text_config"]
    rope = {**text.get("rope_scaling", {}), **text.get("rope_parameters", {})}
    head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    if config.expert.head_dim != head_dim:
        raise ConfigurationError(
            f"expert_cfg.head_dim is {config.expert.head_dim}; it has to be the backbone's, {head_dim}"
        )
    return ExpertGeometry(
        hidden_size=config.expert.hidden_size,
        intermediate_size=config.expert.intermediate_size,
        heads=config.expert.num_attention_heads,
        kv_heads=text["num_key_value_heads"],
        head_dim=head_dim,
        layers=text["num_hidden_layers"],
        norm_eps=text["rms_norm_eps"],
        rope_theta=float(rope.get("rope_theta", text.get("rope_theta", 5e6))),
        mrope_section=tuple(rope["mrope_section"]),
    )


def backbone_config(config: ModelConfig) -> Any:
    """transformers' configuration of the backbone, with Alpamayo's vocabulary."""
    from transformers import Qwen3VLConfig

    values = deepcopy(dict(config.backbone))
    values["text_config"] = {**values["text_config"], "vocab_size": config.vocabulary.vocab_size, "dtype": None}
    for key in ("architectures", "model_type", "dtype"):
        values.pop(key, None)
    backbone = Qwen3VLConfig(**values)
    backbone._attn_implementation = "sdpa"
    return backbone


@contextlib.contextmanager
def parameters_on_meta() -> Iterator[None]:
    """Modules made inside hold no memory for their parameters; buffers, such as rotary frequencies, are real."""
    register = nn.Module.register_parameter

    def register_on_meta(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=False)
        register(module, name, parameter)

    nn.Module.register_parameter = register_on_meta  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
