from dataclasses import replace

import pytest

from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.sim.recorded_drive import RecordedDrive, record_drive
from alpamayo_ros.tools.checkpoint_presets import PRESETS
from alpamayo_ros.tools.make_checkpoint import make_checkpoint, write_descriptions


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """The small checkpoint's sizes, with random weights."""
    folder = tmp_path_factory.mktemp("mini") / "random"
    make_checkpoint(PRESETS["mini"], folder, seed=0)
    return ModelConfig.load(folder)


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """The same in miniature, as training finds it: without weights."""
    mini = PRESETS["mini"]
    text = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    vision = {"hidden_size": 32, "num_heads": 1, "intermediate_size": 64, "depth": 2, "out_hidden_size": 64}
    backbone = {
        "text_config": {**mini.backbone["text_config"], **text, "intermediate_size": 96},
        "vision_config": {**mini.backbone["vision_config"], **vision},
    }
    expert = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "head_dim": 32}
    sizes = {**mini.sizes, "expert_cfg": expert, "action_in_proj_cfg": {"hidden_size": 32}}
    folder = tmp_path_factory.mktemp("toy") / "checkpoint"
    write_descriptions(folder, replace(mini, backbone=backbone, sizes=sizes), {}, "A toy.")
    return ModelConfig.load(folder)


@pytest.fixture(scope="session")
def recorded() -> RecordedDrive:
    return record_drive(1, 3.0)
