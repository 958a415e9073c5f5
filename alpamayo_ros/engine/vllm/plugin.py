"""vLLM's entry point, group `vllm.general_plugins`: tells it of this package's model. Every process of vLLM runs it."""

from __future__ import annotations


def register() -> None:
    """Register the model class and the config parser. May be called again."""
    from vllm import ModelRegistry
    from vllm.transformers_utils import config as vllm_configs

    from alpamayo_ros.engine.vllm.checkpoint_config import ARCHITECTURE, CONFIG_FORMAT, CheckpointConfigParser

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, f"{__package__}.model:{ARCHITECTURE}")
    if CONFIG_FORMAT not in vllm_configs._CONFIG_FORMAT_TO_CONFIG_PARSER:
        vllm_configs.register_config_parser(CONFIG_FORMAT)(CheckpointConfigParser)
