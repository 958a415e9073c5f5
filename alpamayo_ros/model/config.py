"""A checkpoint's configuration: NVIDIA's config.json, and the backbone that it names.

The six `_target_` names in config.json are matched by their class names and never imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.action_projection import ActionProjectionConfig
from alpamayo_ros.model.action_space import ActionSpaceConfig
from alpamayo_ros.model.flow_matching import FlowMatchingConfig
from alpamayo_ros.model.geometry import QWEN3_VL_8B, BackboneGeometry, DecoderGeometry
from alpamayo_ros.model.history_tokens import HistoryTokenizerConfig
from alpamayo_ros.model.images import ImageConfig
from alpamayo_ros.model.repository import find_folder, is_repository_name
from alpamayo_ros.model.vocabulary import MODEL_TYPES, Vocabulary, VocabularyConfig

MODEL_FILES = ("*.json", "*.safetensors", "LICENSE*", "README*", "vlm_base/*")
INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
BASE_FILES = ("config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json")
# In config.json of checkpoints that make_checkpoint wrote:
RANDOM_WEIGHTS_KEY = "random_weights"  # nothing was trained
RANDOM_SEED_KEY = "random_weights_seed"  # there are no weight files; the weights are made with this seed on loading
DEFAULT_BACKBONE = "Qwen/Qwen3-VL-8B-Instruct"  # where config.json names none, as in NVIDIA's code

TARGETS = {
    "action_space_cfg": "UnicycleAccelCurvatureActionSpace",
    "diffusion_cfg": "FlowMatching",
    "action_in_proj_cfg": "PerWaypointActionInProjV2",
    "action_out_proj_cfg": "Linear",
    "traj_tokenizer_cfg": "DiscreteTrajectoryTokenizer",
    "hist_traj_tokenizer_cfg": "DeltaTrajectoryTokenizer",
}
_REQUIRED_VALUES = {"vlm_backend": "qwenvl3", "keep_same_dtype": True, "expert_non_causal_attention": True}


@dataclass(frozen=True)
class ModelConfig:
    """Everything that is known of a checkpoint before its weights are read."""

    folder: Path
    model_type: str  # "alpamayo1_5" or "alpamayo_r1"
    action_space: ActionSpaceConfig
    flow: FlowMatchingConfig
    projection: ActionProjectionConfig
    history: HistoryTokenizerConfig
    history_tokens: int  # places for them in the prompt
    vocabulary: VocabularyConfig
    images: ImageConfig
    backbone: BackboneGeometry
    expert: DecoderGeometry
    trained: bool  # False: random weights
    random_seed: int | None  # not None: there are no weight files, the weights are made with it on loading
    tokenizer_file: Path | None  # None when none was found
    searched: tuple[Path, ...]  # where the backbone's files were looked for
    backbone_problem: str  # why what config.json names as the backbone can't be had; "" when it can

    @classmethod
    def load(cls, checkpoint: str | Path, base_model: str | Path | None = None) -> ModelConfig:
        """Read a checkpoint's config.json and its backbone's files.

        The backbone's config.json, preprocessor_config.json and tokenizer.json are each taken from the first of these
        that has it: `base_model`, what `vlm_name_or_path` in config.json names (a folder relative to the checkpoint,
        or a Hugging Face repository), and for the tokenizer the checkpoint itself. Without a config.json the geometry
        of Qwen3-VL-8B is assumed.

        Args:
            checkpoint: A folder, or a Hugging Face name.
            base_model: A folder or Hugging Face name for the backbone's files.

        Raises:
            ConfigurationError: a file that is missing or can't be read, an unknown `_target_`, or a value that can't
                be.
        """
        folder = find_folder(str(checkpoint), MODEL_FILES, _has_model)
        config = read_json(folder / "config.json")
        if config.get("model_type") not in MODEL_TYPES:
            raise ConfigurationError(
                f"{folder / 'config.json'}: model_type is {config.get('model_type')!r}; "
                f"it has to be one of {', '.join(MODEL_TYPES)}"
            )
        for key, value in _REQUIRED_VALUES.items():
            if config.get(key, value) != value:
                raise ConfigurationError(f"{key} in config.json is {config[key]!r}; only {value!r} is supported")
        sections = {name: _section(config, name) for name in TARGETS}
        history = HistoryTokenizerConfig.from_json(sections["hist_traj_tokenizer_cfg"])
        vocabulary = VocabularyConfig.from_json(config, history.num_bins)
        sources, problem = _backbone_folders(folder, config, base_model)
        geometry_file = _first_with(sources, "config.json")
        processor_file = _first_with(sources, "preprocessor_config.json")
        backbone = BackboneGeometry.from_json(
            read_json(geometry_file) if geometry_file else QWEN3_VL_8B,
            vocabulary.vocab_size,
            str(geometry_file) if geometry_file else "the built-in Qwen3-VL-8B geometry",
        )
        images = ImageConfig.from_json(config, read_json(processor_file) if processor_file else None)
        _check_patches(images, backbone, processor_file)
        searched = (*sources, folder)
        return cls(
            folder=folder,
            model_type=vocabulary.model_type,
            action_space=ActionSpaceConfig.from_json(sections["action_space_cfg"]),
            flow=FlowMatchingConfig.from_json(sections["diffusion_cfg"]),
            projection=ActionProjectionConfig.from_json(sections["action_in_proj_cfg"]),
            history=history,
            history_tokens=_int(config, "tokens_per_history_traj"),
            vocabulary=vocabulary,
            images=images,
            backbone=backbone,
            expert=backbone.expert(_mapping(config, "expert_cfg")),
            trained=not config.get(RANDOM_WEIGHTS_KEY, False) and RANDOM_SEED_KEY not in config,
            random_seed=_int(config, RANDOM_SEED_KEY, least=0) if RANDOM_SEED_KEY in config else None,
            tokenizer_file=_first_with(searched, "tokenizer.json"),
            searched=searched,
            backbone_problem=problem,
        )

    @property
    def has_captions(self) -> bool:
        """Whether images come with camera names and frame numbers, as Alpamayo 1.5 was trained; R1 was not."""
        return self.model_type == "alpamayo1_5"

    def load_vocabulary(self) -> Vocabulary:
        """Read the backbone's tokenizer and extend it.

        Raises:
            ConfigurationError: there is no tokenizer, it can't be read, or it belongs to another model.
        """
        if self.tokenizer_file is None:
            problem = f" ({self.backbone_problem})" if self.backbone_problem else ""
            raise ConfigurationError(
                f"no tokenizer.json in {', '.join(map(str, self.searched))}{problem}; "
                "give the folder or name of the backbone (base_model), such as nvidia/Cosmos-Reason2-8B"
            )
        try:
            tokenizer = Tokenizer.from_file(str(self.tokenizer_file))
        except Exception as error:  # tokenizers raises plain Exception
            raise ConfigurationError(f"{self.tokenizer_file} can't be read as a tokenizer: {error}") from error
        return Vocabulary(tokenizer, self.vocabulary)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file that holds an object.

    Raises:
        ConfigurationError: no such file, or another content.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigurationError(f"{path} is missing") from error
    except (OSError, ValueError, RecursionError) as error:  # endless numbers or nesting among them
        raise ConfigurationError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path} holds a {type(content).__name__}; it has to be an object")
    return content


def _backbone_folders(
    folder: Path, config: Mapping[str, Any], base_model: str | Path | None
) -> tuple[tuple[Path, ...], str]:
    """Where the backbone's files may lie, best first; and why what config.json names can't be had, or ""."""
    given = (find_folder(str(base_model), BASE_FILES, _has_backbone),) if base_model else ()
    name = config.get("vlm_name_or_path", DEFAULT_BACKBONE)
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"vlm_name_or_path in config.json is {name!r}; it has to name the backbone")
    if (folder / name).is_dir():
        return (*given, folder / name), ""
    if given:
        return given, ""
    if not is_repository_name(name):
        raise ConfigurationError(
            f"vlm_name_or_path in config.json is {name!r}, but {folder} has no such folder; give the folder or name of "
            "the backbone (base_model)"
        )
    try:
        return (find_folder(name, BASE_FILES, _has_backbone),), ""
    except ConfigurationError as error:  # the geometry is built in; a missing tokenizer is named when it is needed
        return (), str(error)


def _check_patches(images: ImageConfig, backbone: BackboneGeometry, processor_file: Path | None) -> None:
    for name, key in (("patch_size",) * 2, ("temporal_patch_size",) * 2, ("merge_size", "spatial_merge_size")):
        cut, taken = getattr(images, name), backbone.json["vision_config"][key]
        if cut != taken:
            origin = processor_file or "Qwen3-VL's image processor"
            raise ConfigurationError(f"{name} in {origin} is {cut}, but {key} in {backbone.origin} says {taken}")


def _has_model(folder: Path) -> bool:
    """Whether a snapshot has a config and all the weight files that it speaks of."""
    if not (folder / "config.json").is_file():
        return False
    try:
        index = read_json(folder / INDEX_FILE)
    except ConfigurationError:
        return (folder / SINGLE_FILE).is_file()
    return all((folder / name).is_file() for name in index.get("weight_map", {}).values())


def _has_backbone(folder: Path) -> bool:
    return all((folder / name).is_file() for name in ("config.json", "tokenizer.json"))


def _first_with(folders: tuple[Path, ...], name: str) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = _mapping(config, name)
    target = section.get("_target_")
    if not isinstance(target, str) or target.rpartition(".")[2] != TARGETS[name]:
        raise ConfigurationError(f"{name}._target_ in config.json is {target!r}; only {TARGETS[name]} is supported")
    return section


def _mapping(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if not isinstance(config.get(name), Mapping):
        raise ConfigurationError(f"{name} in config.json is {config.get(name)!r}; it has to be an object")
    section: Mapping[str, Any] = config[name]
    return section


def _int(config: Mapping[str, Any], name: str, least: int = 1) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigurationError(f"{name} in config.json is {value!r}; it has to be a whole number of {least} or more")
    return value
