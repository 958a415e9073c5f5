"""The backbone at work: images to features, a prompt to its KV cache, and tokens written one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.model.expert import KeyValue
from alpamayo_ros.model.images import ImagePatches
from alpamayo_ros.model.positions import following_positions, prompt_positions
from alpamayo_ros.model.prompt import Prompt


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """What the vision tower made of one image."""

    embeddings: Tensor  # [tokens, hidden]
    deepstack: Tensor  # [levels, tokens, hidden]: added to the first layers' outputs
    grid: tuple[int, int]  # rows and columns of tokens


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A point of a reading."""

    length: int  # tokens
    hidden: Tensor  # [1, 1, hidden] of the last one


class Backbone:
    """transformers' Qwen3-VL, used piece by piece."""

    def __init__(self, vlm: Any) -> None:
        self._vlm = vlm
        self._text = vlm.model.language_model
        self.device = vlm.lm_head.weight.device
        self.dtype = vlm.lm_head.weight.dtype
        self._merge = int(vlm.config.vision_config.spatial_merge_size)

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        """Features of each image."""
        out = self._vlm.model.get_image_features(
            patches.pixel_values.to(self.device, self.dtype), patches.grid_thw.to(self.device), return_dict=True
        )
        levels = zip(*out.deepstack_features, strict=True)
        grids = [(int(h) // self._merge, int(w) // self._merge) for _, h, w in patches.grid_thw.tolist()]
        return [
            ImageFeatures(embeddings, torch.stack(list(level)), grid)
            for embeddings, level, grid in zip(out.pooler_output, levels, grids, strict=True)
        ]

    def read(self, prompt: Prompt, images: Sequence[ImageFeatures]) -> Reading:
        """Run a prompt through all layers."""
        positions, delta = prompt_positions(len(prompt), prompt.images, [image.grid for image in images])
        token_ids = torch.tensor([prompt.token_ids], device=self.device)
        embeddings = self._text.embed_tokens(token_ids)
        is_image = torch.zeros_like(token_ids, dtype=torch.bool)
        deepstack = None
        if images:
            for tokens in prompt.images:
                is_image[0, tokens.start : tokens.stop] = True
            features = torch.cat([image.embeddings for image in images])
            embeddings[is_image] = features.to(embeddings.dtype)
            deepstack = list(torch.cat([image.deepstack for image in images], 1))
        reading = Reading(self, delta)
        reading.run(
            inputs_embeds=embeddings,
            position_ids=positions[:, None].to(self.device),
            visual_pos_masks=is_image,
            deepstack_visual_embeds=deepstack,
        )
        return reading


class Reading:
    """A KV cache that grows with the tokens that follow, and the logits of the next one.

    Attributes:
        delta: what turns a slot number after the prompt into a rotary position.
    """

    def __init__(self, backbone: Backbone, delta: int) -> None:
        from transformers import DynamicCache

        self._backbone = backbone
        self._cache = DynamicCache(config=backbone._text.config)
        self._hidden: Tensor | None = None  # [1, tokens of the last run, hidden]
        self.delta = delta

    def __len__(self) -> int:
        return int(self._cache.get_seq_length())

    def run(self, **inputs: Any) -> None:
        """One pass over new tokens."""
        out = self._backbone._text(past_key_values=self._cache, use_cache=True, **inputs)
        self._hidden = out.last_hidden_state

    def follow(self, token_ids: Sequence[int]) -> None:
        """Append tokens."""
        positions = following_positions(len(self), len(token_ids), self.delta, self._backbone.device)
        self.run(
            input_ids=torch.tensor([list(token_ids)], device=self._backbone.device), position_ids=positions[:, None]
        )

    def logits(self, count: int = 1) -> Tensor:
        """What comes after each of the last `count` tokens of the last run: [count, V] float32."""
        assert self._hidden is not None
        return self._backbone._vlm.lm_head(self._hidden[0, -count:]).float()

    def snapshot(self) -> Snapshot:
        """Where the reading is now, to come back to."""
        assert self._hidden is not None
        return Snapshot(len(self), self._hidden[:, -1:])

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to there: forget what was read since."""
        self.crop(snapshot.length)
        self._hidden = snapshot.hidden

    def crop(self, length: int) -> None:
        """Forget all but the first `length` tokens. The logits are not those of what remains."""
        surplus = len(self) - length
        if surplus > 0:
            self._cache.crop(-surplus)  # a negative number means "so many fewer" in every version of transformers

    def prefix(self, length: int | None = None) -> list[KeyValue]:
        """Keys and values [kv heads, tokens, head_dim] of every layer, over the first `length` tokens."""
        layers: Any = self._cache.layers
        return [(layer.keys[0, :, :length], layer.values[0, :, :length]) for layer in layers]
