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
