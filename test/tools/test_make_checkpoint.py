import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from alpamayo_ros.model.config import RANDOM_WEIGHTS_KEY, ModelConfig
from alpamayo_ros.tools import make_checkpoint
from alpamayo_ros.tools.make_checkpoint import make_tiny


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
