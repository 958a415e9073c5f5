"""The sizes of the Qwen3-VL backbone, and of the action expert that reads its KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alpamayo_ros.core.types import ConfigurationError

# Qwen3-VL-8B, which Cosmos-Reason2-8B shares: what the published Alpamayo checkpoints are built on. Used when the
# backbone's own config.json can't be had; the tensors' shapes then have to agree with it.
QWEN3_VL_8B: Mapping[str, Any] = {
    "model_type": "qwen3_vl",
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_vl_text",
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 262144,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "rope_theta": 5000000,
        "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [24, 20, 20]},
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "hidden_act": "gelu_pytorch_tanh",
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 4096,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}


VISION_SIZES = (
    *("depth", "hidden_size", "intermediate_size", "num_heads", "patch_size", "spatial_merge_size"),
    *("temporal_patch_size", "out_hidden_size", "num_position_embeddings"),
)
# What the expert's layers do, and could do otherwise in transformers.
EXPERT_VALUES: Mapping[str, Any] = {"hidden_act": "silu", "attention_bias": False}


@dataclass(frozen=True)
class DecoderGeometry:
    """The sizes of a stack of text layers."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float

    def __post_init__(self) -> None:
        for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_key_value_heads"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} is {getattr(self, name)}; it has to be positive")
        if self.head_dim < 2 or self.head_dim % 2:
            raise ConfigurationError(f"head_dim is {self.head_dim}; it has to be even and at least 2")
        if self.num_attention_heads < 1 or self.num_attention_heads % self.num_key_value_heads:
            raise ConfigurationError(
                f"num_attention_heads is {self.num_attention_heads}; "
                f"it has to be a multiple of num_key_value_heads, {self.num_key_value_heads}"
            )

    @classmethod
    def from_json(cls, section: Mapping[str, Any], name: str) -> DecoderGeometry:
        """Read a text_config, in the spelling of transformers 4 (rope_theta) or 5 (rope_parameters).

        Raises:
            ConfigurationError: a missing key, one of another type, or positions of a kind that isn't supported.
        """
        rope = section.get("rope_parameters") or section.get("rope_scaling") or {}
        kind = rope.get("rope_type", "default")
        if kind != "default":
            raise ConfigurationError(f"{name} has rope_type {kind!r}; only 'default' is supported")
        theta = section.get("rope_theta", rope.get("rope_theta"))
        if theta is None:
            raise ConfigurationError(f"{name} has no rope_theta")
        sizes: dict[str, Any] = {}
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"):
            sizes[key] = _positive_int(section, key, name)
        sizes["num_key_value_heads"] = (
            _positive_int(section, "num_key_value_heads", name)
            if "num_key_value_heads" in section
            else sizes["num_attention_heads"]
        )
        sizes["head_dim"] = _positive_int(section, "head_dim", name)
        try:
            return cls(**sizes, rms_norm_eps=float(section.get("rms_norm_eps", 1e-6)), rope_theta=float(theta))
        except (ConfigurationError, ValueError, TypeError) as error:
            raise ConfigurationError(f"{name}: {error}") from error


@dataclass(frozen=True)
class BackboneGeometry:
    """The backbone's config.json with the vocabulary of Alpamayo, and what of it code asks for."""

    json: Mapping[str, Any]  # as transformers' Qwen3VLConfig takes it
    text: DecoderGeometry
    max_positions: int
    origin: str  # where it was read, for messages

    @classmethod
    def from_json(cls, config: Mapping[str, Any], vocab_size: int, origin: str) -> BackboneGeometry:
        """Read a Qwen3-VL config.json; its vocabulary becomes `vocab_size`, as NVIDIA's code resizes the embedding.

        Raises:
            ConfigurationError: another architecture, or a key that is missing.
        """
        if config.get("model_type") != "qwen3_vl":
            raise ConfigurationError(f"{origin}: model_type is {config.get('model_type')!r}; it has to be 'qwen3_vl'")
        for key in ("text_config", "vision_config"):
            if not isinstance(config.get(key), Mapping):
                raise ConfigurationError(f"{origin} has no {key}")
        _check_vision(config["vision_config"], f"vision_config in {origin}")
        text = {**config["text_config"], "vocab_size": vocab_size}
        decoder = DecoderGeometry.from_json(text, f"text_config in {origin}")
        _check_axes(text, decoder.head_dim, f"text_config in {origin}")
        return cls(
            json={**config, "text_config": text},
            text=decoder,
            max_positions=int(text.get("max_position_embeddings", 262144)),
            origin=origin,
        )

    def expert(self, overrides: Mapping[str, Any]) -> DecoderGeometry:
        """The action expert's sizes: the backbone's text layers with `expert_cfg` of config.json on top.

        Raises:
            ConfigurationError: an expert that can't read the backbone's KV cache.
        """
        section = {**self.json["text_config"], **overrides}
        for key, value in EXPERT_VALUES.items():
            if section.get(key, value) != value:
                raise ConfigurationError(f"expert_cfg.{key} is {section[key]!r}; only {value!r} is supported")
        geometry = DecoderGeometry.from_json(section, "expert_cfg")
        for name in ("num_hidden_layers", "num_key_value_heads", "head_dim"):
            if getattr(geometry, name) != getattr(self.text, name):
                raise ConfigurationError(
                    f"expert_cfg.{name} is {getattr(geometry, name)}; it has to be {getattr(self.text, name)}, "
                    "since the expert reads the backbone's KV cache layer by layer"
                )
        return geometry


def _check_axes(section: Mapping[str, Any], head_dim: int, name: str) -> None:
    """Positions have three axes, which share the pairs of a head."""
    rope = section.get("rope_parameters") or section.get("rope_scaling") or {}
    axes = rope.get("mrope_section", [24, 20, 20])  # transformers' default
    if not isinstance(axes, list) or len(axes) != 3 or 2 * sum(axes) != head_dim:
        raise ConfigurationError(
            f"{name}: mrope_section is {axes!r}; it has to be 3 numbers whose sum is half of head_dim, {head_dim // 2}"
        )


def _check_vision(section: Mapping[str, Any], name: str) -> None:
    """Transformers would fill in what is missing, which shows in no tensor's shape for some of it."""
    for key in VISION_SIZES:
        _positive_int(section, key, name)
    layers = section.get("deepstack_visual_indexes")
    if not isinstance(layers, list) or not set(layers) <= set(range(section["depth"])):
        raise ConfigurationError(
            f"{name}: deepstack_visual_indexes is {layers!r}; it has to be a list of layers, "
            f"from 0 to {section['depth'] - 1}"
        )


def _positive_int(section: Mapping[str, Any], key: str, name: str) -> int:
    value = section.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"{name}: {key} is {value!r}; it has to be a positive whole number")
    return value
