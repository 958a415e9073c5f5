import json
import math
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from tokenizers import Tokenizer

from alpamayo_ros.model.alpamayo import AlpamayoModel, make_network_on_meta
from alpamayo_ros.model.checkpoint import Checkpoint
from alpamayo_ros.model.config import RANDOM_WEIGHTS_KEY, ModelConfig
from alpamayo_ros.tools import make_checkpoint
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.make_checkpoint import make_tiny, plan_shards


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        make_tiny(tmp_path / name, seed)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert a == b
    assert a.keys() == c.keys()
    assert a != c


def test_it_is_small_complete_and_marked_as_random(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", 0)
    files = contents(tmp_path / "tiny")
    assert {"README.md", "config.json", "model.safetensors.index.json", "vlm_base/config.json"} < files.keys()
    assert sum(map(len, files.values())) < 10_000_000
    assert "random weights" in files["README.md"].decode()
    assert json.loads(files["config.json"])[RANDOM_WEIGHTS_KEY] is True
    config = ModelConfig.load(tmp_path / "tiny")
    assert not config.trained
    assert config.expert.head_dim in (32, 64, 80, 96, 112, 128)  # what vLLM's attention takes


def test_its_tokenizer_reads_any_text(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", 0)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tiny" / "vlm_base" / "tokenizer.json"))
    text = "Nudge left, then halt.\n Überholen 30 m 左转 🚗"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_what_is_there_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tiny"
    arguments = ["--preset", "tiny", "--seed", "0", "--out", str(out)]
    assert make_checkpoint.main(arguments) == 0
    before = contents(out)
    assert make_checkpoint.main(arguments) == 0
    assert "as it was" in capsys.readouterr().out
    assert make_checkpoint.main([*arguments[:3], "1", *arguments[4:]]) == 1
    assert f"{out} exists and is not this checkpoint" in capsys.readouterr().err
    assert contents(out) == before
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]  # nothing half-written stays


def test_an_empty_folder_is_filled_and_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    assert make_checkpoint.main(["--out", str(tmp_path / "empty")]) == 0
    (tmp_path / "file").write_text("")
    assert make_checkpoint.main(["--out", str(tmp_path / "file")]) == 1
    assert "exists and is not this checkpoint" in capsys.readouterr().err


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The full-size checkpoint without its 22 GB."""
    out = tmp_path_factory.mktemp("checkpoints") / "full"
    assert make_checkpoint.main(["--preset", "full", "--shapes-only", "--out", str(out)]) == 0
    return out


def test_the_full_size_is_nvidias_and_needs_no_weights_on_disk(full: Path) -> None:
    assert sum(map(len, contents(full).values())) < 10_000_000
    config = ModelConfig.load(full)
    assert not config.trained
    assert config.random_seed == 0
    assert sum(map(math.prod, make_network_on_meta(config).shapes().values())) == 11_082_495_218


def test_its_special_tokens_have_nvidias_ids(full: Path) -> None:
    vocabulary = ModelConfig.load(full).load_vocabulary()
    names = ("<|endoftext|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<i0>", "<|traj_future_start|>")
    assert [vocabulary.id_of(name) for name in names] == [151643, 151645, 151652, 151655, 151669, 155681]
    assert vocabulary.history_ids.start == 154669
    assert vocabulary.size == 155697


def test_weights_made_on_loading_are_those_that_would_have_been_written(tmp_path: Path) -> None:
    for out, more in (("written", []), ("not_written", ["--shapes-only"])):
        assert make_checkpoint.main(["--seed", "3", "--out", str(tmp_path / out), *more]) == 0
    assert not list((tmp_path / "not_written").glob("*.safetensors"))
    models = [
        AlpamayoModel.load(ModelConfig.load(tmp_path / out), torch.device("cpu"), torch.float32)
        for out in ("written", "not_written")
    ]
    written, made = (dict(model.network.named_parameters()) for model in models)
    assert written.keys() == made.keys()
    assert all(torch.equal(made[name], written[name]) for name in written)
    assert made["expert.norm.weight"].dtype == torch.float32
    assert models[1].checkpoint_hash == ""


def test_shards_are_as_large_as_they_may_be_and_hold_every_tensor_once(full: Path, tmp_path: Path) -> None:
    shapes = make_network_on_meta(ModelConfig.load(full)).shapes()
    shards = plan_shards(shapes, PRESETS["full"].shard_bytes)
    assert [name for shard in shards for name in shard] == list(shapes)
    assert len(shards) == 5  # as the published checkpoint has them
    assert max(2 * sum(math.prod(shapes[name]) for name in shard) for shard in shards) <= 5_000_000_000

    small = replace(PRESETS["tiny"], shard_bytes=500_000)
    make_checkpoint.make_checkpoint(small, tmp_path / "small", seed=0)
    checkpoint = Checkpoint.open(tmp_path / "small")
    assert len(checkpoint.files) > 5
    assert checkpoint.problems(make_network_on_meta(ModelConfig.load(tmp_path / "small")).shapes()) == []


def test_random_weights_have_the_scale_that_keeps_activations_near_one(tmp_path: Path) -> None:
    make_tiny(tmp_path / "tiny", 0)
    checkpoint = Checkpoint.open(tmp_path / "tiny")
    with safe_open(checkpoint.tensors["expert.layers.0.mlp.down_proj.weight"].file, "pt") as weights:
        down = weights.get_tensor("expert.layers.0.mlp.down_proj.weight").float()
    assert down.std().item() == pytest.approx(1 / math.sqrt(down.shape[1]), rel=0.05)
    assert down.mean().abs() < 0.01


def test_a_disk_that_is_too_full_is_named_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100e9, 99e9, 1e9))
    assert make_checkpoint.main(["--preset", "full", "--out", str(tmp_path / "full")]) == 1
    assert f"full takes 22.2 GB, but {tmp_path} has only 1.0 GB free" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_lost_a_shard_is_not_taken_for_complete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_tiny(tmp_path / "tiny", 0)
    next((tmp_path / "tiny").glob("*.safetensors")).unlink()
    assert make_checkpoint.main(["--out", str(tmp_path / "tiny")]) == 1
    assert "exists and is not this checkpoint" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_makes_the_full_size_model_without_a_second_copy(full: Path) -> None:
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    model = AlpamayoModel.load(ModelConfig.load(full), torch.device("cuda"), torch.bfloat16)
    assert model.parameters == 11_082_495_218
    assert torch.cuda.memory_allocated() - before < 2.01 * model.parameters
    assert torch.cuda.max_memory_allocated() - before < 2 * model.parameters + 2e9
