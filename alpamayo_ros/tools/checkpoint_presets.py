"""What the checkpoints with random weights are: their sizes, their configs, and tokenizers to go with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from alpamayo_ros.model.config import TARGETS
from alpamayo_ros.model.geometry import QWEN3_VL_8B
from alpamayo_ros.model.prompt import CAMERA_NAMES, SYSTEM, TASK
from alpamayo_ros.model.vocabulary import special_token_names
from alpamayo_ros.tools.mini_preset import MINI_BACKBONE, MINI_SIZES, MINI_TEXTS

MODEL_TYPE = "alpamayo1_5"
TRAJECTORY_TOKENS = 4000
# Those of Qwen's tokens that code asks for, which are all that the tiny tokenizer has.
QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# All of them, in the order of their ids, the first of which is 151643.
ALL_QWEN_TOKENS = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>"),
    *("<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>"),
    *("</tool_response>", "<think>", "</think>"),
)
QWEN_WORDS = 151643  # tokens before those
# What the tokenizers learn their few merges from.
SENTENCES = (
    SYSTEM,
    TASK,
    *CAMERA_NAMES.values(),
    "frame 0 frame 1 frame 2 frame 3",
    "Keep the lane and the speed because the road ahead is free.",
    "Slow down because the lead vehicle is braking.",
    "Turn left in 30m. Turn right onto the next street. Go straight ahead.",
    "Stop at the red traffic light and wait for pedestrians.",
)

TINY_BACKBONE: Mapping[str, Any] = {
    "text_config": {
        "hidden_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "intermediate_size": 256,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "max_position_embeddings": 32768,
        "rope_theta": 5000000,
        "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [6, 5, 5]},
        "tie_word_embeddings": False,
        "model_type": "qwen3_vl_text",
    },
    "vision_config": {
        "depth": 4,
        "hidden_size": 64,
        "num_heads": 2,
        "intermediate_size": 128,
        "hidden_act": "gelu_pytorch_tanh",
        "in_channels": 3,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "out_hidden_size": 128,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [1, 2, 3],
        "model_type": "qwen3_vl",
    },
}


@dataclass(frozen=True)
class Preset:
    """A kind of checkpoint."""

    name: str
    about: str
    backbone: Mapping[str, Any]  # the backbone's config.json, but for the token ids
    tokenizer: Callable[[], Tokenizer]  # the backbone's
    sizes: Mapping[str, Any]  # what config.json says otherwise than NVIDIA's: of the expert, the images, ...
    shard_bytes: int


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            name="tiny",
            about="a few MB, for demos and tests",
            backbone=TINY_BACKBONE,
            tokenizer=lambda: small_tokenizer(),
            sizes={
                "min_pixels": 12288,  # small images, so that a tick takes a fraction of a second on a CPU
                "max_pixels": 16384,
                "expert_cfg": {"hidden_size": 96, "intermediate_size": 192, "num_attention_heads": 4, "head_dim": 32},
                "action_in_proj_cfg": {"hidden_size": 64},
            },
            shard_bytes=4_000_000,
        ),
        Preset(
            name="mini",
            about="the size of the small trained one, 9 MB",
            backbone=MINI_BACKBONE,
            tokenizer=lambda: small_tokenizer((*SENTENCES, *MINI_TEXTS)),
            sizes=MINI_SIZES,
            shard_bytes=20_000_000,
        ),
        Preset(
            name="full",
            about="Alpamayo 1.5's size, 22 GB, for measurements",
            backbone=QWEN3_VL_8B,
            tokenizer=lambda: full_size_tokenizer(),
            sizes={
                "min_pixels": 163840,
                "max_pixels": 196608,
                "expert_cfg": {
                    "hidden_size": 2048,
                    "intermediate_size": 8256,
                    "num_attention_heads": 16,
                    "head_dim": 128,
                },
                "action_in_proj_cfg": {"hidden_size": 1024},
            },
            shard_bytes=5_000_000_000,
        ),
    )
}


def small_tokenizer(texts: Sequence[str] = SENTENCES, special: Sequence[str] = QWEN_TOKENS) -> Tokenizer:
    """A byte-level BPE tokenizer with a few hundred merges, learned from texts, and Qwen's special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in special])
    return tokenizer


def full_size_tokenizer() -> Tokenizer:
    """The small one with as many tokens as Qwen3's, of which most are never written, and its ids of special tokens.

    Texts take another number of tokens than with the real one, the prompt of four cameras 3,077 instead of 3,086; give
    that one as the base model where it matters.
    """
    description = json.loads(small_tokenizer(special=()).to_str())
    words = description["model"]["vocab"]
    words |= {f"<unused {token_id}>": token_id for token_id in range(len(words), QWEN_WORDS)}
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in ALL_QWEN_TOKENS])
    return tokenizer


def backbone_config(preset: Preset, tokenizer: Tokenizer, vocab_size: int) -> dict[str, Any]:
    """The backbone's config.json, with the ids that its tokenizer has."""
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    text = {
        **preset.backbone["text_config"],
        "vocab_size": vocab_size,
        "eos_token_id": tokenizer.token_to_id("<|im_end|>"),
    }
    return {
        **preset.backbone,
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "tie_word_embeddings": False,
        "text_config": text,
        **{key: tokenizer.token_to_id(name) for key, name in names.items()},
    }


def model_config(preset: Preset, base_size: int) -> dict[str, Any]:
    """config.json with NVIDIA's keys, over a backbone whose tokenizer has `base_size` tokens."""
    bins = preset.sizes.get("traj_vocab_size", TRAJECTORY_TOKENS)
    added = [name for name in special_token_names(MODEL_TYPE) if name not in QWEN_TOKENS]
    named = ("history", "future", "history_start", "future_start", "history_end", "future_end")
    config: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "architectures": ["Alpamayo1_5"],
        "vlm_name_or_path": "vlm_base",
        "vlm_backend": "qwenvl3",
        "traj_vocab_size": bins,
        "tokens_per_history_traj": 48,
        "tokens_per_future_traj": 128,
        "model_dtype": "bfloat16",
        "dtype": "bfloat16",
        "attn_implementation": "sdpa",
        "add_special_tokens": True,
        "vocab_size": base_size + bins + len(added),
        "traj_token_start_idx": base_size,
        "traj_token_ids": {name: base_size + bins + added.index(f"<|traj_{name}|>") for name in named},
        "keep_same_dtype": True,
        "expert_non_causal_attention": True,
        "include_camera_ids": True,
        "include_frame_nums": True,
        "diffusion_cfg": {"int_method": "euler", "num_inference_steps": 10},
        "action_in_proj_cfg": {
            "num_enc_layers": 4,
            "max_freq": 100.0,
            "num_fourier_feats": 20,
        },
        "action_out_proj_cfg": {},
        "action_space_cfg": {
            "accel_bounds": [-9.8, 9.8],
            "accel_mean": 0.02902694707164455,
            "accel_std": 0.6810426736454882,
            "curvature_bounds": [-0.33, 0.33],
            "curvature_mean": 0.0002692167976330542,
            "curvature_std": 0.026148280660833106,
            "dt": 0.1,
            "n_waypoints": 64,
        },
        "traj_tokenizer_cfg": {"num_bins": 3000, "dims_min": [-10.0, -10.0], "dims_max": [10.0, 10.0]},
        "hist_traj_tokenizer_cfg": {},
    }
    for key, value in preset.sizes.items():
        config[key] = {**config.get(key, {}), **value} if isinstance(value, Mapping) else value
    for section, name in TARGETS.items():
        config[section] = {"_target_": f"alpamayo1_5.{name}", **config[section]}
    return config
