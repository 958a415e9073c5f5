"""Encoded frames into vLLM: features in the form of uint8 images (pictures.py) go as they are to the model.

Hugging Face's processor has no part in it. vLLM calls this interface experimental; the differences between the
versions that work are bridged here and nowhere else.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from transformers.feature_extraction_utils import BatchFeature
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import BaseDummyInputsBuilder, BaseMultiModalProcessor, PromptReplacement

try:
    from vllm.multimodal.processing import ProcessorInputs
except ImportError:  # newer
    from vllm.multimodal.processing.inputs import ProcessorInputs

from alpamayo_ros.engine.vllm.checkpoint_config import feature_bytes, image_config
from alpamayo_ros.engine.vllm.torchvision_stand_in import torchvision_or_stand_in
from alpamayo_ros.model.images import ImageConfig

HF_STEP = inspect.signature(BaseMultiModalProcessor._apply_hf_processor_main)  # differs from version to version

with torchvision_or_stand_in():
    from vllm.model_executor.models.qwen3_vl import Qwen3VLProcessingInfo


class AlpamayoProcessingInfo(Qwen3VLProcessingInfo):
    """What vLLM asks about images before it has seen one."""

    @property
    def images(self) -> ImageConfig:
        """How they are prepared."""
        return image_config(self.get_hf_config())

    @property
    def bytes_per_token(self) -> int:
        """Of an image's features."""
        return feature_bytes(self.get_hf_config(), self.ctx.model_config.dtype)

    def get_hf_processor(self, **_: object) -> Any:
        """There is none."""
        raise RuntimeError("Hugging Face's processor has no part in this model")

    def get_tokenizer(self) -> Any:
        """None: prompts come as token ids."""
        return self.ctx.tokenizer

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Any number of images, and nothing else."""
        return {"image": None}

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """By the pixel limits alone."""
        return {"image": self.images.max_tokens}


class AlpamayoDummyInputs(BaseDummyInputsBuilder[AlpamayoProcessingInfo]):
    """The largest inputs, for vLLM's measurement of memory."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """Prompts come as token ids."""
        return ""

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], *_: Any, **__: Any) -> Mapping[str, Any]:
        """Features that are zero."""
        tokens = self.info.images.max_tokens
        rows = max(n for n in range(1, math.isqrt(tokens) + 1) if tokens % n == 0)
        picture = np.zeros((rows, tokens // rows, self.info.bytes_per_token), np.uint8)
        return {"image": [picture] * mm_counts.get("image", 0)}

    def processor_inputs(self, seq_len: int, mm_counts: Mapping[str, int]) -> ProcessorInputs:
        """A prompt of nothing but these images."""
        data = self.get_dummy_mm_data(seq_len, mm_counts)
        return ProcessorInputs(
            prompt=[self.info.get_hf_config().image_token_id] * mm_counts.get("image", 0),
            mm_data_items=self.info.parse_mm_data(data, validate=False),
        )

    def get_dummy_processor_inputs(
        self, seq_len: int, mm_counts: Mapping[str, int], *_: Any, **__: Any
    ) -> ProcessorInputs:
        """Where older versions ask."""
        return self.processor_inputs(seq_len, mm_counts)


class AlpamayoMultiModalProcessor(BaseMultiModalProcessor[AlpamayoProcessingInfo]):
    """Counts the tokens of each image and passes its features on."""

    requires_tokenizer = False

    def get_dummy_inputs(self, seq_len: int, mm_counts: Mapping[str, int], *_: Any, **__: Any) -> ProcessorInputs:
        """Where newer versions ask."""
        return self.dummy_inputs.processor_inputs(seq_len, mm_counts)

    def _apply_hf_processor_main(self, *arguments: Any, **more: Any) -> Any:
        """Newer versions give the images and want features; older ones give the prompt, too, and want it back."""
        given = HF_STEP.bind(self, *arguments, **more).arguments
        features = self._features(given["mm_items"])
        return (list(given["prompt"]), features, False) if "prompt" in given else features

    def _features(self, mm_items: Any) -> BatchFeature:
        if not mm_items.get_count("image", strict=False):
            return BatchFeature()
        merge = self.info.images.merge_size
        pictures = [torch.from_numpy(each) for each in mm_items["image"].get_processor_data()["images"]]
        grids = [[1, picture.shape[0] * merge, picture.shape[1] * merge] for picture in pictures]
        return BatchFeature({"features": pictures, "image_grid_thw": torch.tensor(grids)})

    def _get_mm_fields_config(self, *_: Any, **__: Any) -> Mapping[str, MultiModalFieldConfig]:
        return {
            "features": MultiModalFieldConfig.batched("image"),
            "image_grid_thw": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        }

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, object], out_mm_kwargs: Any
    ) -> list[PromptReplacement]:
        token = self.info.get_hf_config().image_token_id
        merged = self.info.images.merge_size**2

        def replacement(index: int) -> list[int]:
            return [token] * (int(out_mm_kwargs["image"][index]["image_grid_thw"].data.prod()) // merged)

        return [PromptReplacement(modality="image", target=[token], replacement=replacement)]
