"""The backbone in vLLM: its Qwen3-VL with NVIDIA's weight names, encoded images in, and trajectory tokens masked."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY

from alpamayo_ros.engine.vllm.checkpoint_config import trajectory_ids
from alpamayo_ros.engine.vllm.processor import (
    AlpamayoDummyInputs,
    AlpamayoMultiModalProcessor,
    AlpamayoProcessingInfo,
)
from alpamayo_ros.engine.vllm.torchvision_stand_in import torchvision_or_stand_in

with torchvision_or_stand_in():
    from vllm.model_executor.models.qwen3_vl import Qwen3VLForConditionalGeneration


@MULTIMODAL_REGISTRY.register_processor(
    AlpamayoMultiModalProcessor, info=AlpamayoProcessingInfo, dummy_inputs=AlpamayoDummyInputs
)
class AlpamayoForConditionalGeneration(Qwen3VLForConditionalGeneration):
    """Reads the language model of an Alpamayo checkpoint's `vlm.*`.

    The action expert is left to the worker extension, and the vision tower to the engine (vision.py).
    """

    hf_to_vllm_mapper: ClassVar[WeightsMapper] = WeightsMapper(
        orig_to_new_prefix={
            "vlm.lm_head.": "language_model.lm_head.",
            "vlm.model.language_model.": "language_model.model.",
            "expert.": None,
            "action_in_proj.": None,
            "action_out_proj.": None,
            "action_space.": None,
            "vlm.model.visual.": None,
        }
    )

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.visual = _NoTower(self.config)
        self.features_dtype = vllm_config.model_config.dtype
        self.trajectory_ids = trajectory_ids(self.config)
        device = vllm_config.device_config.device
        self.register_buffer("trajectory_bias", torch.full((1,), -torch.inf, device=device), persistent=False)

    def allow_trajectory_tokens(self, allowed: bool) -> None:
        """Whether `<i*>` may be written: as an answer yes, as reasoning no. Holds for captured graphs, too."""
        self.trajectory_bias.fill_(0.0 if allowed else -torch.inf)

    def compute_logits(self, hidden_states: Tensor, *arguments: Any) -> Tensor | None:
        """[rows, V]; None on ranks that don't sample."""
        logits = super().compute_logits(hidden_states, *arguments)
        if logits is not None:
            logits[:, self.trajectory_ids.start : self.trajectory_ids.stop] += self.trajectory_bias
        return logits

    def embed_multimodal(self, **arguments: Any) -> tuple[Tensor, ...]:
        """Each image's tokens [T, (1 + layers) hidden_size], as they were given."""
        return tuple(each.view(self.features_dtype).flatten(0, 1) for each in arguments.get("features", ()))


class _NoTower(nn.Module):
    """What vLLM asks of the tower that isn't there."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.spatial_merge_size = int(config.vision_config.spatial_merge_size)
