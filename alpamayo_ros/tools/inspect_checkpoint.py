"""Say what a checkpoint is and what is wrong with it, without reading its weights."""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from pathlib import Path

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.model.alpamayo import ACTION_CONSTANTS, FREQUENCIES, make_network_on_meta
from alpamayo_ros.model.checkpoint import Checkpoint
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.geometry import DecoderGeometry


def inspect(folder: str, base_model: str | None) -> list[str]:
    """Print a checkpoint's description; the problems that keep it from being loaded.

    Raises:
        ConfigurationError: it can't even be looked at.
    """
    config = ModelConfig.load(folder, base_model)
    checkpoint = Checkpoint.open(config.folder)
    network = make_network_on_meta(config)
    problems = checkpoint.problems(network.shapes(), optional=(*ACTION_CONSTANTS, *FREQUENCIES))
    vision = config.backbone.json["vision_config"]
    print(f"model       {config.model_type}, {'trained' if config.trained else 'random weights'}")
    print(f"backbone    {config.backbone.origin}")
    print(f"  text      {_describe(config.backbone.text)}, vocabulary {config.vocabulary.vocab_size}")
    print(f"  vision    {vision['depth']} layers of {vision['hidden_size']}, {vision['num_heads']} heads")
    print(f"expert      {_describe(config.expert)}")
    print(f"flow        {config.flow.num_inference_steps} steps, {config.action_space.n_waypoints} waypoints")
    print(f"images      {config.images.min_pixels} to {config.images.max_pixels} pixels")
    for part in ("vlm", "expert", "action_in_proj", "action_out_proj"):
        count = sum(math.prod(entry.shape) for name, entry in checkpoint.tensors.items() if name.split(".")[0] == part)
        print(f"parameters  {count:>14,} {part}")
    dtypes = Counter(entry.dtype for entry in checkpoint.tensors.values())
    print(f"tensors     {len(checkpoint.tensors)}: {', '.join(f'{n} {dtype}' for dtype, n in dtypes.most_common())}")
    for file in checkpoint.files:
        print(f"file        {file.name}, {file.stat().st_size:,} bytes")
    print(f"hash        {checkpoint.hash}")
    licences = sorted(path.name for path in config.folder.iterdir() if path.name.upper().startswith("LICENSE"))
    print(f"licence     {', '.join(licences) or 'no file'}")
    print(f"tokenizer   {config.tokenizer_file or 'none'}")
    try:
        config.load_vocabulary()
    except AlpamayoError as error:
        problems.append(str(error))
    return problems


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 when something is wrong with the checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m alpamayo_ros.tools.inspect_checkpoint", description=__doc__)
    parser.add_argument("checkpoint", metavar="DIR", help="a folder, or a Hugging Face name")
    parser.add_argument("--base-model", metavar="PATH", help="folder or name for the backbone's config and tokenizer")
    options = parser.parse_args(arguments)
    try:
        problems = inspect(options.checkpoint, options.base_model)
    except AlpamayoError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if not problems:
        print(f"{Path(options.checkpoint)} is complete")
    return 1 if problems else 0


def _describe(geometry: DecoderGeometry) -> str:
    return (
        f"{geometry.num_hidden_layers} layers of {geometry.hidden_size}, {geometry.num_attention_heads} heads "
        f"({geometry.num_key_value_heads} for keys and values) of {geometry.head_dim}, "
        f"feed-forward {geometry.intermediate_size}"
    )


if __name__ == "__main__":
    sys.exit(main())
