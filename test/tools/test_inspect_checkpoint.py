import hashlib
import os
from pathlib import Path

import pytest
from tiny_checkpoint import changed_copy, write_tiny_checkpoint

from alpamayo_ros.tools import inspect_checkpoint


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
