"""Write a complete checkpoint with random weights, in NVIDIA's layout, with a tokenizer of its own.

It exercises everything that a real one does, and its trajectories mean nothing. With `--shapes-only` it has no weight
files: the weights are made on the engine's device when it is loaded, which takes seconds on a GPU and no disk.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from alpamayo_ros.core.types import AlpamayoError, ConfigurationError
from alpamayo_ros.engine.device import resolve_device
from alpamayo_ros.model.alpamayo import make_network_on_meta
from alpamayo_ros.model.checkpoint import INDEX_FILE, Checkpoint
from alpamayo_ros.model.config import RANDOM_SEED_KEY, RANDOM_WEIGHTS_KEY, ModelConfig
from alpamayo_ros.model.random_weights import random_tensors
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.checkpoint_presets import PRESETS, Preset, backbone_config, model_config
from alpamayo_ros.tools.command import guarded, run_command

BYTES_PER_WEIGHT = 2  # bfloat16
README = """---
license: apache-2.0
---
# A checkpoint with random weights

Made by `python -m alpamayo_ros.tools.make_checkpoint --preset {preset} --seed {seed}`. It has the layout, the config
keys and the tensor names of an Alpamayo 1.5 checkpoint, and none of its weights. Nothing was trained: its trajectories
and its words mean nothing. It must never drive a vehicle.
"""


def make_tiny(out: Path, seed: int) -> bool:
    """Write the tiny checkpoint; see `make_checkpoint`."""
    return make_checkpoint(PRESETS["tiny"], out, seed)


def make_checkpoint(
    preset: Preset, out: Path, seed: int, device: torch.device | None = None, shapes_only: bool = False
) -> bool:
    """Write a checkpoint, all or nothing.

    One shard at a time lies in memory.

    Args:
        preset: Its kind.
        out: A new or empty folder.
        seed: Of the weights.
        device: Where they are made; the CPU when not given.
        shapes_only: Leave the weights to be made when the checkpoint is loaded.

    Returns:
        False when it lay there already.

    Raises:
        ConfigurationError: something else is at `out`, or the disk is too full.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        folder = Path(scratch) / out.name
        write_descriptions(
            folder,
            preset,
            {RANDOM_WEIGHTS_KEY: True} | ({RANDOM_SEED_KEY: seed} if shapes_only else {}),
            README.format(preset=preset.name, seed=seed),
        )
        network = make_network_on_meta(ModelConfig.load(folder))
        if out.is_dir() and _is_the_same(out, folder, None if shapes_only else network.shapes()):
            return False
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigurationError(f"{out} exists and is not this checkpoint; remove it, or give another folder")
        if not shapes_only:
            shards = plan_shards(network.shapes(), preset.shard_bytes)
            _check_disk(out, network.shapes())
            write_shards(folder, shards, random_tensors(network, seed, device))
        folder.rename(out)
    return True


def write_descriptions(folder: Path, preset: Preset, weights: Mapping[str, Any], readme: str) -> None:
    """Everything but the weights.

    Args:
        folder: A new one.
        preset: The checkpoint's kind.
        weights: What config.json says of the weights; nothing of trained ones.
        readme: The model card.
    """
    base = folder / "vlm_base"
    base.mkdir(parents=True)
    tokenizer = preset.tokenizer()
    config = model_config(preset, tokenizer.get_vocab_size())
    tokenizer.save(str(base / "tokenizer.json"))
    write_json(base / "config.json", backbone_config(preset, tokenizer, config["vocab_size"]))
    write_json(folder / "config.json", {**config, **weights})
    (folder / "README.md").write_text(readme)


def _is_the_same(out: Path, folder: Path, shapes: Mapping[str, tuple[int, ...]] | None) -> bool:
    """Whether `out` has the descriptions that `folder` has, and complete weights of these shapes (None: no weights)."""
    for path in folder.rglob("*"):
        other = out / path.relative_to(folder)
        if path.is_file() and not (other.is_file() and other.read_bytes() == path.read_bytes()):
            return False
    try:
        return not Checkpoint.open(out).problems(shapes) if shapes is not None else True
    except AlpamayoError:
        return False


def plan_shards(shapes: Mapping[str, tuple[int, ...]], shard_bytes: int) -> list[list[str]]:
    """The names of the tensors of each shard, which is no larger than `shard_bytes` unless one tensor is."""
    shards: list[list[str]] = [[]]
    size = 0
    for name, shape in shapes.items():
        more = BYTES_PER_WEIGHT * math.prod(shape)
        if shards[-1] and size + more > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += more
    return shards


def write_shards(folder: Path, shards: Sequence[Sequence[str]], tensors: Iterator[tuple[str, Tensor]]) -> None:
    """Write safetensors shards and their index, as transformers names them.

    Args:
        folder: Where to.
        shards: The names of the tensors of each, in the order in which the tensors come.
        tensors: All of them.
    """
    weight_map: dict[str, str] = {}
    total = 0
    with progress(total=sum(map(len, shards)), unit=" tensors", desc="random weights") as bar:
        for number, names in enumerate(shards, 1):
            file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
            shard: dict[str, Tensor] = {}
            for expected in names:
                name, tensor = next(tensors)
                assert name == expected
                shard[name] = tensor.cpu().contiguous()
                total += tensor.nbytes
                bar.update()
            save_file(shard, folder / file, metadata={"format": "pt"})
            (folder / file).chmod(0o644)  # it is written for its owner alone, but a service may be another user
            weight_map |= dict.fromkeys(names, file)
    write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON that people can read."""
    path.write_text(json.dumps(value, indent=2) + "\n")


def _check_disk(out: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    needed = BYTES_PER_WEIGHT * sum(map(math.prod, shapes.values()))
    free = shutil.disk_usage(out.parent).free
    if needed + needed // 100 > free:
        raise ConfigurationError(
            f"{out} takes {needed / 1e9:.1f} GB, but {out.parent.absolute()} has only {free / 1e9:.1f} GB free; "
            "give a folder on another disk, or --shapes-only"
        )


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.make_checkpoint",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    about = "; ".join(f"{preset.name}: {preset.about}" for preset in PRESETS.values())
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny", help=f"{about} (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights")
    parser.add_argument(
        "--device", default="cpu", help="where weights are made: auto, cpu, cuda or cuda:N (default: %(default)s)"
    )
    parser.add_argument("--shapes-only", action="store_true", help="no weight files: make the weights on loading")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder")
    options = parser.parse_args(arguments)
    return guarded(lambda: _make(options), interrupted="interrupted; nothing was left behind")


def _make(options: argparse.Namespace) -> int:
    device = resolve_device(options.device)
    new = make_checkpoint(PRESETS[options.preset], options.out, options.seed, device, options.shapes_only)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    kind = "random weights to be made on loading" if options.shapes_only else "random weights"
    print(f"{options.out}: {kind}, {size / 1e6:.1f} MB{'' if new else ', as it was'}")
    return 0


if __name__ == "__main__":
    run_command(main)
