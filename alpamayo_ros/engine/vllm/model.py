"""The backbone in vLLM: its Qwen3-VL with NVIDIA's weight names, pixels in, and trajectory tokens masked."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY

from alpamayo_ros.engine.vllm.checkpoint_config import image_config, trajectory_ids
from alpamayo_ros.engine.vllm.processor import (
    AlpamayoDummyInputs,
    AlpamayoMultiModalProcessor,
    AlpamayoProcessingInfo,
)
from alpamayo_ros.engine.vllm.torchvision_stand_in import torchvision_or_stand_in
from alpamayo_ros.model.images import preprocess

with torchvision_or_stand_in():
    from vllm.model_executor.models.qwen3_vl import Qwen3VLForConditionalGeneration


@MULTIMODAL_REGISTRY.register_processor(
    AlpamayoMultiModalProcessor, info=AlpamayoProcessingInfo, dummy_inputs=AlpamayoDummyInputs
)
class AlpamayoForConditionalGeneration(Qwen3VLForConditionalGeneration):
    """Reads an Alpamayo checkpoint's `vlm.*`; the action expert's weights are left to the worker extension."""

    hf_to_vllm_mapper: ClassVar[WeightsMapper] = WeightsMapper(
        orig_to_new_prefix={
            "vlm.model.visual.": "visual.",
            "vlm.lm_head.": "language_model.lm_head.",
            "vlm.model.language_model.": "language_model.model.",
            "expert.": None,
            "action_in_proj.": None,
            "action_out_proj.": None,
            "action_space.": None,
        }
    )

    def __init__(self, *, vllm_config: Any, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.images = image_config(self.config)
        self.trajectory_ids = trajectory_ids(self.config)
        self.images_encoded = 0  # so far, by the vision tower
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

    def _parse_and_validate_image_input(self, **arguments: Any) -> Any:
        pixels = arguments.get("pixel_values")
        if pixels is not None:
            patches = preprocess(list(pixels), self.images, self.visual.device)
            arguments["pixel_values"] = patches.pixel_values.to(self.visual.dtype)
            self.images_encoded += len(patches.token_counts)
        return super()._parse_and_validate_image_input(**arguments)
