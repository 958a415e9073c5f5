import json
from pathlib import Path
from typing import Any

import pytest
from tiny_checkpoint import changed_copy

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model import config as config_module
from alpamayo_ros.model.alpamayo import make_network_on_meta
from alpamayo_ros.model.config import TARGETS, ModelConfig
from alpamayo_ros.model.geometry import QWEN3_VL_8B, BackboneGeometry


def test_nvidias_keys_are_read(tiny: Path) -> None:
    config = ModelConfig.load(tiny)
    assert config.model_type == "alpamayo1_5"
    assert config.has_captions
    assert config.action_space.accel_std == 0.6810426736454882
    assert config.action_space.n_waypoints == 64
    assert config.flow.num_inference_steps == 10
    assert config.history_tokens == 48
    assert (config.expert.num_hidden_layers, config.expert.num_key_value_heads) == (4, 2)  # the backbone's
    assert (config.expert.hidden_size, config.expert.num_attention_heads) == (96, 4)  # its own
    assert config.expert.rope_theta == 5_000_000
    assert config.backbone.json["text_config"]["vocab_size"] == config.vocabulary.vocab_size
    assert not config.trained
    assert config.load_vocabulary().future_start == config.vocabulary.traj_token_ids["future_start"]


@pytest.mark.parametrize("section", sorted(TARGETS))
def test_an_unknown_target_is_named_and_never_imported(tiny: Path, tmp_path: Path, section: str) -> None:
    trap = tmp_path / "imported"

    def change(config: dict[str, Any]) -> None:
        config[section]["_target_"] = f"os.system('touch {trap}')"

    with pytest.raises(ConfigurationError) as caught:
        ModelConfig.load(changed_copy(tiny, tmp_path / "copy", change))
    assert f"{section}._target_" in str(caught.value)
    assert f"only {TARGETS[section]} is supported" in str(caught.value)
    assert not trap.exists()


def test_targets_are_known_by_their_class_alone(tiny: Path, tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        for section, name in TARGETS.items():
            config[section]["_target_"] = f"a_package_that_is_not_here.{name}"

    assert ModelConfig.load(changed_copy(tiny, tmp_path / "copy", change)).model_type == "alpamayo1_5"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("vlm_backend", "internvl", "vlm_backend in config.json is 'internvl'"),
        ("expert_non_causal_attention", False, "expert_non_causal_attention in config.json is False"),
        ("keep_same_dtype", False, "keep_same_dtype"),
        ("model_type", "alpamayo3", "model_type is 'alpamayo3'; it has to be one of alpamayo_r1, alpamayo1_5"),
        ("tokens_per_history_traj", "48", "tokens_per_history_traj in config.json is '48'"),
        ("vlm_name_or_path", "", "vlm_name_or_path in config.json is ''"),
        ("vlm_name_or_path", "vlm_bas", "is 'vlm_bas', but "),
        ("model_type", None, "config.json: model_type is None; it has to be one of alpamayo_r1, alpamayo1_5"),
        ("min_pixels", "163840", "min_pixels in config.json is '163840'; it has to be a whole number"),
        ("expert_cfg", None, "expert_cfg in config.json is None"),
        ("expert_cfg", {"head_dim": 64}, "expert_cfg.head_dim is 64; it has to be 32"),
        ("expert_cfg", {"num_hidden_layers": 3}, "expert_cfg.num_hidden_layers is 3; it has to be 4"),
        ("expert_cfg", {"num_attention_heads": 3}, "num_attention_heads is 3; it has to be a multiple of"),
        ("expert_cfg", {"hidden_size": 0}, "hidden_size is 0"),
        ("expert_cfg", {"hidden_act": "gelu"}, "expert_cfg.hidden_act is 'gelu'; only 'silu' is supported"),
        ("expert_cfg", {"attention_bias": True}, "expert_cfg.attention_bias is True; only False is supported"),
        ("expert_cfg", {"rope_scaling": {"rope_type": "yarn"}}, "expert_cfg has rope_type 'yarn'"),
        (
            "hist_traj_tokenizer_cfg",
            {"_target_": TARGETS["hist_traj_tokenizer_cfg"], "pad_origin_at_beginning": False},
            "hist_traj_tokenizer_cfg.pad_origin_at_beginning is False; only True is supported",
        ),
        (
            "action_space_cfg",
            {"_target_": TARGETS["action_space_cfg"], "accel_mean": 0.0, "accel_std": 1.0, "curvature_mean": 0.0},
            "config.json has no action_space_cfg.curvature_std",
        ),
        (
            "traj_tokenizer_cfg",
            {"_target_": TARGETS["traj_tokenizer_cfg"]},
            "config.json has no traj_tokenizer_cfg.num_bins",
        ),
    ],
)
def test_a_value_that_cannot_be_is_named(tiny: Path, tmp_path: Path, key: str, value: object, message: str) -> None:
    folder = changed_copy(tiny, tmp_path / "copy", lambda config: config.update({key: value}))
    with pytest.raises(ConfigurationError) as caught:
        ModelConfig.load(folder).load_vocabulary()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "section", ["action_space_cfg", "diffusion_cfg", "action_in_proj_cfg", "hist_traj_tokenizer_cfg"]
)
def test_a_key_that_is_not_known_is_named_in_a_warning_and_changes_nothing(
    tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, section: str
) -> None:
    folder = changed_copy(tiny, tmp_path / "copy", lambda config: config[section].update({"a_new_key": [1]}))
    config = ModelConfig.load(folder)
    assert caplog.messages == [f"{section}.a_new_key in config.json is not known here and is passed over"]
    known = ModelConfig.load(tiny)
    assert (config.action_space, config.flow) == (known.action_space, known.flow)
    assert (config.projection, config.history) == (known.projection, known.history)


def test_keys_that_do_not_matter_here_are_passed_over_silently(
    tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def change(config: dict[str, Any]) -> None:
        config["diffusion_cfg"] |= {"train_timestep_sampler": "beta", "x_dims": [64, 2]}
        config["hist_traj_tokenizer_cfg"] |= {"load_weights": False, "pad_origin_at_beginning": True}
        config["action_in_proj_cfg"] |= {"fourier_persistent": False}

    ModelConfig.load(changed_copy(tiny, tmp_path / "copy", change))
    assert caplog.messages == []


def test_keys_with_a_documented_default_may_be_missing(tiny: Path, tmp_path: Path) -> None:
    constants = ("accel_mean", "accel_std", "curvature_mean", "curvature_std")

    def change(config: dict[str, Any]) -> None:
        for section in ("diffusion_cfg", "hist_traj_tokenizer_cfg"):
            config[section] = {"_target_": config[section]["_target_"]}
        config["action_space_cfg"] = {key: config["action_space_cfg"][key] for key in ("_target_", *constants)}
        for key in ("min_pixels", "max_pixels", "vlm_backend", "keep_same_dtype", "add_special_tokens"):
            del config[key]

    config, whole = ModelConfig.load(changed_copy(tiny, tmp_path / "copy", change)), ModelConfig.load(tiny)
    assert (config.action_space, config.flow, config.history) == (whole.action_space, whole.flow, whole.history)
    assert (config.images.min_pixels, config.images.max_pixels) == (163840, 196608)


def test_files_that_cannot_be_read_are_named(tiny: Path, tmp_path: Path) -> None:
    folder = changed_copy(tiny, tmp_path / "copy", lambda _: None)
    (folder / "vlm_base" / "config.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"vlm_base/config\.json can't be read as JSON"):
        ModelConfig.load(folder)
    (folder / "vlm_base" / "config.json").write_text("[]")
    with pytest.raises(ConfigurationError, match="holds a list"):
        ModelConfig.load(folder)
    (folder / "vlm_base" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ConfigurationError, match="model_type is 'llama'; it has to be 'qwen3_vl'"):
        ModelConfig.load(folder)
    (folder / "config.json").write_bytes((folder / "vlm_base" / "config.json").read_bytes())
    with pytest.raises(ConfigurationError, match=r"copy/config\.json: model_type is 'llama'; it has to be one of alpa"):
        ModelConfig.load(folder)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        ("vision_config", "depth", "4", "depth is '4'; it has to be a positive whole number"),
        ("vision_config", "deepstack_visual_indexes", None, "deepstack_visual_indexes is None; it has to be a list"),
        (
            "vision_config",
            "deepstack_visual_indexes",
            [1, 4],
            "deepstack_visual_indexes is [1, 4]; it has to be a list",
        ),
        ("vision_config", "out_hidden_size", None, "out_hidden_size is None"),
        ("text_config", "rms_norm_eps", "tiny", "could not convert string to float: 'tiny'"),
        ("text_config", "num_key_value_heads", 3, "num_attention_heads is 4; it has to be a multiple of"),
        ("text_config", "rope_scaling", {"mrope_section": [24, 20, 20]}, "mrope_section is [24, 20, 20]"),
        ("text_config", "attention_dropout", "much", "isn't what transformers takes"),
    ],
)
def test_a_wrong_backbone_is_named_with_its_file(
    tiny: Path, tmp_path: Path, section: str, key: str, value: object, message: str
) -> None:
    folder = changed_copy(tiny, tmp_path / "copy", lambda _: None)
    path = folder / "vlm_base" / "config.json"
    backbone = json.loads(path.read_text())
    backbone[section] = {name: kept for name, kept in {**backbone[section], key: value}.items() if kept is not None}
    path.write_text(json.dumps(backbone))
    with pytest.raises(ConfigurationError) as caught:
        make_network_on_meta(ModelConfig.load(folder))
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_processor_that_cuts_other_patches_than_the_backbone_takes_is_named(tiny: Path, tmp_path: Path) -> None:
    folder = changed_copy(tiny, tmp_path / "copy", lambda _: None)
    (folder / "vlm_base" / "preprocessor_config.json").write_text('{"patch_size": 14, "merge_size": 2}')
    with pytest.raises(ConfigurationError, match=r"patch_size in .*/preprocessor_config\.json is 14, but .* says 16"):
        ModelConfig.load(folder)


def test_the_base_model_comes_before_what_the_checkpoint_names(tiny: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    geometry = json.loads((tiny / "vlm_base" / "config.json").read_text())
    geometry["text_config"]["rms_norm_eps"] = 1e-5
    (base / "config.json").write_text(json.dumps(geometry))
    config = ModelConfig.load(tiny, base)
    assert config.backbone.text.rms_norm_eps == 1e-5
    assert config.tokenizer_file == tiny / "vlm_base" / "tokenizer.json"  # what it lacks is taken from there


def test_a_backbone_that_cannot_be_had_has_the_built_in_geometry(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def unreachable(name: str, *_: object) -> Path:
        if Path(name).is_dir():
            return Path(name)
        asked.append(name)
        raise ConfigurationError("the hub can't be reached")

    monkeypatch.setattr(config_module, "find_folder", unreachable)

    def change(config: dict[str, Any]) -> None:
        config["vlm_name_or_path"] = "nvidia/Cosmos-Reason2-8B"
        config["expert_cfg"] = {
            "hidden_size": 2048,
            "intermediate_size": 8256,
            "num_attention_heads": 16,
            "head_dim": 128,
        }

    folder = changed_copy(tiny, tmp_path / "copy", change)
    config = ModelConfig.load(folder)
    assert asked == ["nvidia/Cosmos-Reason2-8B"]
    assert config.backbone.text.hidden_size == 4096
    with pytest.raises(
        ConfigurationError,
        match=r"no tokenizer\.json in .*copy \(the hub can't be reached\); give the folder or name of the backbone",
    ):
        config.load_vocabulary()
    tokenizer = tmp_path / "base" / "tokenizer.json"
    tokenizer.parent.mkdir()
    tokenizer.write_bytes((tiny / "vlm_base" / "tokenizer.json").read_bytes())
    (folder / "vlm_base" / "config.json").unlink()
    config = ModelConfig.load(folder, tokenizer.parent)
    assert config.tokenizer_file == tokenizer
    assert config.backbone.origin == "the built-in Qwen3-VL-8B geometry"


@pytest.mark.parametrize("spelling", ["transformers 4", "transformers 5"])
def test_rope_theta_is_found_in_both_spellings(spelling: str) -> None:
    text = dict(QWEN3_VL_8B["text_config"])
    if spelling == "transformers 5":
        text["rope_parameters"] = {**text.pop("rope_scaling"), "rope_theta": text.pop("rope_theta")}
    geometry = BackboneGeometry.from_json({**QWEN3_VL_8B, "text_config": text}, 100, "here")
    assert geometry.text.rope_theta == 5_000_000
