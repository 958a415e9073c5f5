"""Checkpoints of gigabytes that take no disk: all weights are zero, and files of zeros are holes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from alpamayo_ros.model.alpamayo import make_network_on_meta
from alpamayo_ros.model.checkpoint import INDEX_FILE
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.make_checkpoint import make_checkpoint, plan_shards


def write_sparse_checkpoint(folder: Path, layers: int, shard_bytes: int) -> Path:
    """A checkpoint with text layers of 1,024 and expert layers of 512, 22 million numbers a layer."""
    tiny = PRESETS["tiny"]
    wide: dict[str, Any] = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "head_dim": 128,
    }
    rope = {**tiny.backbone["text_config"]["rope_scaling"], "mrope_section": [24, 20, 20]}
    text = {**tiny.backbone["text_config"], **wide, "rope_scaling": rope}
    vision = {**tiny.backbone["vision_config"], "out_hidden_size": 1024}
    expert = {"hidden_size": 512, "intermediate_size": 4096, "num_attention_heads": 4, "head_dim": 128}
    preset = replace(
        tiny,
        backbone={"text_config": text, "vision_config": vision},
        sizes={**tiny.sizes, "expert_cfg": expert},
    )
    make_checkpoint(preset, folder, seed=0, shapes_only=True)
    config = json.loads((folder / "config.json").read_text())
    del config["random_weights_seed"]
    (folder / "config.json").write_text(json.dumps(config))

    return write_zeros(folder, make_network_on_meta(ModelConfig.load(folder)).shapes(), shard_bytes)


def write_zeros(folder: Path, shapes: Mapping[str, tuple[int, ...]], shard_bytes: int) -> Path:
    """Give a checkpoint's folder weights."""
    weight_map: dict[str, str] = {}
    for number, names in enumerate(plan_shards(shapes, shard_bytes)):
        file = folder / f"model-{number:05d}.safetensors"
        header: dict[str, Any] = {}
        end = 0
        for name in names:
            start, end = end, end + 2 * math.prod(shapes[name])
            header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [start, end]}
        text_of_header = json.dumps(header).encode()
        with file.open("wb") as stream:
            stream.write(len(text_of_header).to_bytes(8, "little") + text_of_header)
            stream.truncate(8 + len(text_of_header) + end)
        weight_map |= dict.fromkeys(names, file.name)
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))
    return folder
