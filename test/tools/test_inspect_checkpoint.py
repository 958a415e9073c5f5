import hashlib
import json
import os
from pathlib import Path

import pytest
import torch
from sparse_checkpoint import write_zeros
from tiny_checkpoint import changed_copy, write_tiny_checkpoint

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.alpamayo import AlpamayoModel, make_network_on_meta
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.tools import inspect_checkpoint
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.make_checkpoint import make_checkpoint


def test_a_good_checkpoint_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tiny_checkpoint(tmp_path / "tiny")
    assert inspect_checkpoint.main([str(folder)]) == 0
    printed = capsys.readouterr().out
    for part in ("alpamayo1_5, random weights", "4 layers of 128", "vlm_base/tokenizer.json", "BF16", "is complete"):
        assert part in printed


def test_what_is_wrong_is_printed_and_the_exit_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tiny_checkpoint(tmp_path / "tiny")

    def smaller_expert(config: dict) -> None:
        config["expert_cfg"]["hidden_size"] = 48

    wrong = changed_copy(folder, tmp_path / "wrong", smaller_expert)
    (wrong / "vlm_base" / "tokenizer.json").unlink()
    assert inspect_checkpoint.main([str(wrong)]) == 1
    errors = capsys.readouterr().err
    assert "expert.norm.weight" in errors
    assert "has the shape [96]; it has to be [48]" in errors
    assert "no tokenizer.json" in errors
    assert inspect_checkpoint.main([str(tmp_path / "nowhere")]) == 1
    assert "nowhere is no folder" in capsys.readouterr().err


def test_parameters_constants_licence_and_hashes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tiny_checkpoint(tmp_path / "tiny")
    (folder / "LICENSE").write_text("")
    assert inspect_checkpoint.main([str(folder), "--sha256"]) == 0
    lines = capsys.readouterr().out.splitlines()
    counts = [int(line.split()[1].replace(",", "")) for line in lines if line.startswith("parameters")]
    assert sum(counts[:-1]) == counts[-1] > 1_000_000
    assert "constants   by config.json, none are stored" in lines
    assert "licence     LICENSE" in lines
    for file in folder.glob("*.safetensors"):
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        assert f"file        {file.name}, {len(content):,} bytes, sha256 {digest}" in lines


def test_damaged_weights_do_not_keep_it_from_telling_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tiny_checkpoint(tmp_path / "tiny")
    file = sorted(folder.glob("*.safetensors"))[0]
    os.truncate(file, file.stat().st_size - 1)
    assert inspect_checkpoint.main([str(folder)]) == 1
    printed = capsys.readouterr()
    assert "alpamayo1_5, random weights" in printed.out
    assert "tokenizer   " in printed.out
    assert f"{file.name} has" in printed.err
    assert "is complete" not in printed.out


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, Path]:
    """A checkpoint of the published size and layout, all zeros, and a folder with nothing but a tokenizer."""
    folder, base = tmp_path / "full", tmp_path / "base"
    make_checkpoint(PRESETS["full"], folder, seed=0, shapes_only=True)
    base.mkdir()
    (folder / "vlm_base" / "tokenizer.json").rename(base / "tokenizer.json")
    (folder / "vlm_base" / "config.json").unlink()
    (folder / "vlm_base").rmdir()
    config = json.loads((folder / "config.json").read_text())
    del config["random_weights"], config["random_weights_seed"]
    (folder / "config.json").write_text(json.dumps({**config, "vlm_name_or_path": "nvidia/Cosmos-Reason2-8B"}))
    shapes = make_network_on_meta(ModelConfig.load(folder, base)).shapes()
    return write_zeros(folder, shapes, PRESETS["full"].shard_bytes), base


def test_the_published_layout_is_complete_with_the_built_in_geometry_and_a_tokenizer(
    published: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, base = published
    assert inspect_checkpoint.main([str(folder), "--base-model", str(base)]) == 0
    printed = capsys.readouterr().out
    for part in (
        "alpamayo1_5, trained",
        "backbone    the built-in Qwen3-VL-8B geometry",
        "36 layers of 4096, 32 heads (8 for keys and values) of 128, feed-forward 12288, vocabulary 155697",
        "11,082,495,218 in all",
        "1165: 1165 BF16",
        str(base / "tokenizer.json"),
    ):
        assert part in printed


def test_a_backbone_of_another_size_than_the_built_in_one_is_noticed_by_its_tensors(
    published: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, base = published
    name = "vlm.model.visual.blocks.3.mlp.linear_fc1.weight"
    shapes = make_network_on_meta(ModelConfig.load(folder, base)).shapes()
    write_zeros(folder, {**shapes, name: (4096, 1152)}, PRESETS["full"].shard_bytes)
    assert inspect_checkpoint.main([str(folder), "--base-model", str(base)]) == 1
    assert f"{name} in " in (errors := capsys.readouterr().err)
    assert "has the shape [4096, 1152]; it has to be [4304, 1152]" in errors
    with pytest.raises(ConfigurationError, match=r"doesn't fit its config\.json and the built-in Qwen3-VL-8B geometry"):
        AlpamayoModel.load(ModelConfig.load(folder, base), torch.device("cpu"), torch.bfloat16)
