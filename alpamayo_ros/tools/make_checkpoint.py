"""Write a complete small checkpoint with random weights, in NVIDIA's layout, with a tokenizer of its own.

It exercises everything that a real one does, and its trajectories mean nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from alpamayo_ros.core.types import AlpamayoError, ConfigurationError
from alpamayo_ros.model.alpamayo import AlpamayoNetwork, make_network_on_meta
from alpamayo_ros.model.checkpoint import INDEX_FILE
from alpamayo_ros.model.config import RANDOM_WEIGHTS_KEY, TARGETS, ModelConfig
from alpamayo_ros.model.prompt import CAMERA_NAMES, SYSTEM, TASK
from alpamayo_ros.model.vocabulary import special_token_names

SHARD_BYTES = 4_000_000
MODEL_TYPE = "alpamayo1_5"
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
# What the tokenizer learns its few merges from.
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
README = """---
license: apache-2.0
---
# A checkpoint with random weights

Made by `python -m alpamayo_ros.tools.make_checkpoint --preset {preset} --seed {seed}`. It has the layout, the config
keys and the tensor names of an Alpamayo 1.5 checkpoint, and none of its weights. Nothing was trained: its trajectories
and its words mean nothing. It must never drive a vehicle.
"""

TINY: Mapping[str, Any] = {
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


def make_tiny(out: Path, seed: int) -> bool:
    """Write the tiny checkpoint, all or nothing.

    Returns:
        False when it lay there already, byte for byte.

    Raises:
        ConfigurationError: something else is at `out`.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        folder = Path(scratch) / out.name
        _write_tiny(folder, seed)
        if out.is_dir() and _contents(out) == _contents(folder):
            return False
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigurationError(f"{out} exists and is not this checkpoint; remove it, or give another folder")
        folder.rename(out)
    return True


def _write_tiny(folder: Path, seed: int) -> None:
    base = folder / "vlm_base"
    base.mkdir(parents=True)
    tokenizer = small_tokenizer()
    config = tiny_config(tokenizer.get_vocab_size())
    tokenizer.save(str(base / "tokenizer.json"))
    write_json(base / "config.json", {**TINY, **backbone_ids(tokenizer, config["vocab_size"])})
    write_json(folder / "config.json", config)
    write_shards(folder, random_tensors(make_network_on_meta(ModelConfig.load(folder)), seed))
    (folder / "README.md").write_text(README.format(preset="tiny", seed=seed))


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def small_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with a few hundred merges and Qwen's special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=640, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    tokenizer.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in QWEN_TOKENS])
    return tokenizer


def backbone_ids(tokenizer: Tokenizer, vocab_size: int) -> dict[str, Any]:
    """The token ids in the backbone's config.json."""
    names = {
        "image_token_id": "<|image_pad|>",
        "video_token_id": "<|video_pad|>",
        "vision_start_token_id": "<|vision_start|>",
        "vision_end_token_id": "<|vision_end|>",
    }
    text = {**TINY["text_config"], "vocab_size": vocab_size, "eos_token_id": tokenizer.token_to_id("<|im_end|>")}
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "tie_word_embeddings": False,
        "text_config": text,
        **{key: tokenizer.token_to_id(name) for key, name in names.items()},
    }


def tiny_config(base_size: int) -> dict[str, Any]:
    """config.json with NVIDIA's keys."""
    bins = 4000
    added = [name for name in special_token_names(MODEL_TYPE) if name not in QWEN_TOKENS]
    named = ("history", "future", "history_start", "future_start", "history_end", "future_end")
    config: dict[str, Any] = {
        "model_type": MODEL_TYPE,
        "architectures": ["Alpamayo1_5"],
        RANDOM_WEIGHTS_KEY: True,
        "vlm_name_or_path": "vlm_base",
        "vlm_backend": "qwenvl3",
        "traj_vocab_size": bins,
        "tokens_per_history_traj": 48,
        "tokens_per_future_traj": 128,
        "min_pixels": 12288,  # small images, so that a tick takes a fraction of a second on a CPU
        "max_pixels": 16384,
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
        "expert_cfg": {"hidden_size": 96, "intermediate_size": 192, "num_attention_heads": 4, "head_dim": 32},
        "diffusion_cfg": {"int_method": "euler", "num_inference_steps": 10},
        "action_in_proj_cfg": {"hidden_size": 64, "num_enc_layers": 4, "max_freq": 100.0, "num_fourier_feats": 20},
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
    for section, name in TARGETS.items():
        config[section] = {"_target_": f"alpamayo1_5.{name}", **config[section]}
    return config


def random_tensors(network: AlpamayoNetwork, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Weights of a scale that keeps every activation near 1, in bfloat16.

    The projection's first layer is damped for high frequencies, and the output small: with plain random weights a
    change of 1e-6 in the noise would grow to metres over ten steps.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in network.named_parameters():
        shape = parameter.shape
        if name.endswith("bias"):
            tensor = torch.zeros(shape)
        elif parameter.ndim == 1:
            tensor = torch.ones(shape)
        else:
            fan_in = math.prod(shape[1:])
            tensor = torch.randn(shape, generator=generator) / math.sqrt(fan_in)
            if "embed" in name:
                tensor *= math.sqrt(fan_in)
            if name == "action_in_proj.encoder.trunk.0.weight":
                frequencies = network.action_in_proj.frequencies
                tensor /= 2 * frequencies.repeat(shape[1] // len(frequencies))
            if name == "action_out_proj.weight":
                tensor *= 0.3
        yield name, tensor.to(torch.bfloat16)


def write_shards(folder: Path, tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Write safetensors shards and their index, as transformers names them."""
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors:
        if size and size + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor.contiguous()
        size += tensor.nbytes
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
    write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON that people can read."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=["tiny"], default="tiny", help="tiny: a few MB, for demos and tests")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    options = parser.parse_args(arguments)
    try:
        new = make_tiny(options.out, options.seed)
    except (AlpamayoError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: random weights, {size / 1e6:.1f} MB{'' if new else ', as it was'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
