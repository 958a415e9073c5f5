"""The checkpoint that comes with the package: found by its name, small, trained, and better than no model."""

from pathlib import Path

from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.repository import SHIPPED
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.make_checkpoint import write_descriptions
from alpamayo_ros.tools.mini_scores import held_out_ticks, open_loop_scores
from alpamayo_ros.tools.train_mini import HELD_OUT


def test_it_is_found_by_its_name_and_small() -> None:
    config = ModelConfig.load("mini")
    assert config.folder == SHIPPED / "mini"
    assert config.trained
    assert sum(file.stat().st_size for file in config.folder.rglob("*") if file.is_file()) < 10_000_000
    card = (config.folder / "README.md").read_text()
    assert "It must never drive a real vehicle." in card
    assert "minADE over 6 samples" in card


def test_its_descriptions_are_those_that_the_preset_writes(tmp_path: Path) -> None:
    write_descriptions(tmp_path / "mini", PRESETS["mini"], {}, "")
    for name in ("config.json", "vlm_base/config.json", "vlm_base/tokenizer.json"):
        assert (tmp_path / "mini" / name).read_text() == (SHIPPED / "mini" / name).read_text()


def test_it_predicts_and_says_what_the_expert_driver_does() -> None:
    drive = record_drive(HELD_OUT + 4, 12.0 + 6.4)
    engine = TransformersEngine.load("mini", device="cpu")
    scores = open_loop_scores(engine, held_out_ticks([drive], every=8))
    engine.close()
    assert scores["ticks"] == 14
    assert scores["min_ade_1_m"] < 0.5 * scores["best_baseline_ade_m"]
    assert scores["sentence_accuracy"] >= 0.7
