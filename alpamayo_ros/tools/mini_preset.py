"""The sizes of the small checkpoint that is trained on the synthetic world, and the texts its tokenizer learns from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpamayo_ros.sim.sentences import SENTENCE_CLASSES

# Kept under 3.2 million parameters: what the pictures need comes first, so the vocabulary is small.
MINI_BACKBONE: Mapping[str, Any] = {
    "text_config": {
        "hidden_size": 192,
        "num_hidden_layers": 5,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 32,
        "intermediate_size": 448,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "attention_bias": False,
        "max_position_embeddings": 4096,
        "rope_theta": 10000,
        "rope_scaling": {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [6, 5, 5]},
        "tie_word_embeddings": False,
        "model_type": "qwen3_vl_text",
    },
    "vision_config": {
        "depth": 4,
        "hidden_size": 96,
        "num_heads": 3,
        "intermediate_size": 288,
        "hidden_act": "gelu_pytorch_tanh",
        "in_channels": 3,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "out_hidden_size": 192,
        "num_position_embeddings": 144,
        "deepstack_visual_indexes": [1],
        "model_type": "qwen3_vl",
    },
}
MINI_SIZES: Mapping[str, Any] = {
    "min_pixels": 12288,  # the world's pictures of 96 x 160 stay as they are: 15 tokens each
    "max_pixels": 16384,
    "expert_cfg": {"hidden_size": 128, "intermediate_size": 384, "num_attention_heads": 6, "head_dim": 32},
    # Periods of 1 to 20 standard deviations: NVIDIA's own, of 1 down to 0.01, take far longer to learn from.
    "action_in_proj_cfg": {"hidden_size": 128, "max_freq": 0.05},
    # numbers that bfloat16 holds, since that is how the model is run
    "action_space_cfg": {
        "accel_mean": 0.0,
        "accel_std": 1.0,
        "curvature_mean": 0.0,
        "curvature_std": 0.03125,
    },
    "traj_vocab_size": 272,
    "traj_tokenizer_cfg": {"num_bins": 16},  # of a future as tokens, which neither training nor inference writes
    # 7 mm a step forward, up to 55 km/h
    "hist_traj_tokenizer_cfg": {
        "num_bins": 256,
        "ego_xyz_min": [-0.25, -1.0, -1.0],
        "ego_xyz_max": [1.55, 1.0, 1.0],
    },
}
MINI_TEXTS = (
    *SENTENCE_CLASSES,
    "system\nuser\nassistant\n",
    "Turn left in 10m Turn right in 20m Continue straight Turn left Turn right 30m 40m 50m 60m 70m 80m 90m 100m",
)
