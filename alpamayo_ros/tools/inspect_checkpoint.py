"""Say what a checkpoint is and what is wrong with it, without reading its weights."""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.model.alpamayo import ACTION_CONSTANTS, FREQUENCIES, make_network_on_meta, read_stored_constants
from alpamayo_ros.model.checkpoint import Checkpoint
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.geometry import DecoderGeometry
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import run_command

STORED_CONSTANTS = (*ACTION_CONSTANTS, *FREQUENCIES)


def inspect(folder: str, base_model: str | None, sha256: bool = False) -> list[str]:
    """Print a checkpoint's description, as far as it can be read; the problems that keep it from being loaded."""
    try:
        config = ModelConfig.load(folder, base_model)
        network = make_network_on_meta(config)
    except AlpamayoError as error:
        return [str(error)]
    _print_architecture(config)
    problems: list[str] = []
    shapes = network.shapes()
    if config.random_seed is not None:
        _print_parameters(shapes)
        print(f"weights     in no file: made with seed {config.random_seed} when the model is loaded")
    else:
        try:
            checkpoint = Checkpoint.open(config.folder)
            _print_weights(checkpoint, sha256)
            problems += checkpoint.problems(shapes, optional=STORED_CONSTANTS)
            read_stored_constants(checkpoint)
        except AlpamayoError as error:
            problems.append(str(error))
    licences = sorted(path.name for path in config.folder.iterdir() if path.name.upper().startswith("LICENSE"))
    print(f"licence     {', '.join(licences) or 'no file'}")
    print(f"tokenizer   {config.tokenizer_file or 'none'}")
    try:
        config.load_vocabulary()
    except AlpamayoError as error:
        problems.append(str(error))
    return problems


def _print_architecture(config: ModelConfig) -> None:
    vision = config.backbone.json["vision_config"]
    print(f"model       {config.model_type}, {'trained' if config.trained else 'random weights'}")
    print(f"backbone    {config.backbone.origin}")
    print(f"  text      {_describe(config.backbone.text)}, vocabulary {config.vocabulary.vocab_size}")
    print(f"  vision    {vision['depth']} layers of {vision['hidden_size']}, {vision['num_heads']} heads")
    print(f"expert      {_describe(config.expert)}")
    print(f"flow        {config.flow.num_inference_steps} steps, {config.action_space.n_waypoints} waypoints")
    print(f"images      {config.images.min_pixels} to {config.images.max_pixels} pixels")


def _print_weights(checkpoint: Checkpoint, sha256: bool) -> None:
    entries = checkpoint.tensors
    _print_parameters({name: entry.shape for name, entry in entries.items() if name not in STORED_CONSTANTS})
    dtypes = Counter(entry.dtype for entry in entries.values())
    print(f"tensors     {len(entries)}: {', '.join(f'{n} {dtype}' for dtype, n in dtypes.most_common())}")
    stored = sorted(set(STORED_CONSTANTS) & entries.keys())
    print(f"constants   {', '.join(stored) or 'by config.json, none are stored'}")
    for file in checkpoint.files:
        digest = f", sha256 {_sha256(file)}" if sha256 else ""
        print(f"file        {file.name}, {file.stat().st_size:,} bytes{digest}")
    print(f"hash        {checkpoint.hash}")


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    size = file.stat().st_size
    with (
        file.open("rb") as stream,
        progress(total=size, unit="B", unit_scale=True, desc=file.name) as bar,
    ):
        while block := stream.read(1 << 24):
            digest.update(block)
            bar.update(len(block))
    return digest.hexdigest()


def _print_parameters(shapes: Mapping[str, tuple[int, ...]]) -> None:
    counts: Counter[str] = Counter()
    for name, shape in shapes.items():
        counts[name.split(".")[0]] += math.prod(shape)
    for part, count in counts.items():
        print(f"parameters  {count:>14,} {part}")
    print(f"parameters  {counts.total():>14,} in all")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 when something is wrong with the checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m alpamayo_ros.tools.inspect_checkpoint", description=__doc__)
    parser.add_argument("checkpoint", metavar="DIR", help="a folder, or a Hugging Face name")
    parser.add_argument("--base-model", metavar="PATH", help="folder or name for the backbone's config and tokenizer")
    parser.add_argument("--sha256", action="store_true", help="of every weight file, to compare with the hub's page")
    options = parser.parse_args(arguments)
    problems = inspect(options.checkpoint, options.base_model, options.sha256)
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
    run_command(main)
