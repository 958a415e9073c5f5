"""The backbone: Qwen3-VL's vision tower and language model, run in pieces.

Images are encoded one by one, so that a frame seen before costs nothing; prompts are read once, whatever the number of
samples; the KV cache belongs to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import numpy as np
import torch
from torch import Tensor
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLForConditionalGeneration

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.geometry import BackboneGeometry
from alpamayo_ros.model.images import ImagePatches
from alpamayo_ros.model.kv_cache import KVCache
from alpamayo_ros.model.prompt import Prompt
from alpamayo_ros.model.rope_positions import rope_positions
from alpamayo_ros.model.to_device import to_device

VISION_ROPE_THETA = 10000.0  # fixed in Qwen3-VL


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """One image as the language model takes it."""

    embeddings: Tensor  # [T, hidden_size]
    deepstack: Tensor  # [layers, T, hidden_size], added to the first layers' outputs
    rows: int  # of tokens; rows * columns = T
    columns: int


@dataclass(frozen=True, eq=False)
class PromptBatch:
    """Prompts of different lengths side by side, padded on the left."""

    token_ids: Tensor  # [B, P] int64
    image_places: Tensor  # [B, P] bool: where images stand; written text may hold the same token
    image_columns: tuple[Tensor, ...]  # per row, those places once more: [N] int64, which nobody has to count for
    attention: Tensor | None  # [B, P] bool, False at padding; None: no padding
    positions: Tensor  # [3, B, P] int64; 1 at padding
    padding: tuple[int, ...]  # per row
    rope_deltas: tuple[int, ...]  # per row, position minus column of what comes after the prompt
    features: tuple[ImageFeatures, ...]  # of all rows, one row after the other

    @property
    def length(self) -> int:
        """P."""
        return int(self.token_ids.shape[1])

    def take(self, rows: Sequence[int]) -> PromptBatch:
        """What goes on in these rows, of which some may be the same, once all of them are in a cache."""
        index = to_device(torch.tensor(rows), self.token_ids.device)
        return replace(
            self,
            token_ids=self.token_ids[index],
            image_places=self.image_places[index],
            image_columns=tuple(self.image_columns[row] for row in rows),
            attention=None if self.attention is None else self.attention[index],
            positions=self.positions[:, index],
            padding=tuple(self.padding[row] for row in rows),
            rope_deltas=tuple(self.rope_deltas[row] for row in rows),
        )


def make_vlm(geometry: BackboneGeometry) -> Qwen3VLForConditionalGeneration:
    """Transformers' model with this geometry, on torch's default device and in its default dtype.

    Raises:
        ConfigurationError: a geometry that transformers refuses.
    """
    content: dict[str, Any] = {key: value for key, value in geometry.json.items() if key != "architectures"}
    try:
        config = Qwen3VLConfig(**content)
    except Exception as error:  # of a type that differs from version to version
        raise ConfigurationError(f"{geometry.origin} isn't what transformers takes: {error}") from error
    vlm = Qwen3VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    return vlm.eval()


def restore_rotary_buffers(vlm: Qwen3VLForConditionalGeneration, geometry: BackboneGeometry) -> None:
    """Fill the rotary frequencies of a model that was made on the meta device; checkpoints don't hold them.

    Raises:
        RuntimeError: a buffer of another name, which a newer transformers would have brought.
    """
    for name, buffer in list(vlm.named_buffers()):
        path, _, leaf = name.rpartition(".")
        if not leaf.endswith("inv_freq"):
            raise RuntimeError(f"transformers' Qwen3-VL has the buffer {name}, which isn't known here")
        theta = VISION_ROPE_THETA if ".visual." in f".{name}" else geometry.text.rope_theta
        count = buffer.shape[0]
        exponent = torch.arange(0, 2 * count, 2, dtype=torch.float32, device="cpu") / (2 * count)
        vlm.get_submodule(path).register_buffer(leaf, 1.0 / theta**exponent, persistent=False)


def batch_prompts(
    prompts: Sequence[Prompt], features: Sequence[Sequence[ImageFeatures]], pad: int, device: torch.device
) -> PromptBatch:
    """Put prompts side by side.

    Args:
        prompts: With the history in place.
        features: The images of each prompt.
        pad: Token id of the padding.
        device: Where the tensors lie.
    """
    length = max(len(prompt) for prompt in prompts)
    padding = tuple(length - len(prompt) for prompt in prompts)
    token_ids = torch.full((len(prompts), length), pad)
    image_places = torch.zeros(len(prompts), length, dtype=torch.bool)
    positions = torch.ones(3, len(prompts), length, dtype=torch.int64)
    deltas = []
    for row, (prompt, images, empty) in enumerate(zip(prompts, features, padding, strict=True)):
        token_ids[row, empty:] = torch.from_numpy(np.array(prompt.token_ids))  # torch.tensor takes 2 ms for 3,000
        for image in prompt.images:
            image_places[row, empty + image.start : empty + image.stop] = True
        rope = rope_positions(prompt, [(image.rows, image.columns) for image in images])
        positions[:, row, empty:] = rope.prompt
        deltas.append(rope.delta - empty)
    attention = None
    if any(padding):
        attention = to_device(torch.arange(length) >= torch.tensor(padding)[:, None], device)
    return PromptBatch(
        to_device(token_ids, device),
        to_device(image_places, device),
        tuple(to_device(places.nonzero()[:, 0], device) for places in image_places),
        attention,
        to_device(positions, device),
        padding,
        tuple(deltas),
        tuple(image for images in features for image in images),
    )


class Backbone:
    """Runs transformers' Qwen3-VL."""

    def __init__(self, vlm: Qwen3VLForConditionalGeneration) -> None:
        self._vlm = vlm
        config: Any = vlm.config
        self.layers = int(config.text_config.num_hidden_layers)
        self._merge = int(config.vision_config.spatial_merge_size)

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        """Run the vision tower over images; each attends only to itself."""
        output = self._vlm.model.get_image_features(patches.pixel_values, patches.grid_thw, return_dict=True)
        # transformers before 5.19 leaves the images of a level joined; newer ones split them
        levels = [each if isinstance(each, Tensor) else torch.cat(each) for each in output.deepstack_features]
        split = [level.split(patches.token_counts) for level in levels]
        deepstack = [torch.stack(of_image) for of_image in zip(*split, strict=True)]
        return [
            ImageFeatures(embeddings, deep, rows // self._merge, columns // self._merge)
            for embeddings, deep, (rows, columns) in zip(output.pooler_output, deepstack, patches.grids, strict=True)
        ]

    def encode_each(self, patches: Sequence[ImagePatches]) -> list[ImageFeatures]:
        """Encode single images one by one: side by side their features would round differently with each company."""
        return [self.encode(each)[0] for each in patches]

    def read(self, batch: PromptBatch, cache: KVCache, logits: int = 1) -> Tensor:
        """Read prompts into an empty cache.

        Returns:
            The logits [B, logits, V] float32 of the last tokens: what comes after each.
        """
        embeddings = self._vlm.get_input_embeddings()(batch.token_ids)
        arguments: dict[str, Any] = {}
        if batch.features:
            places = batch.image_places
            embeddings[places] = torch.cat([image.embeddings for image in batch.features]).to(embeddings.dtype)
            deepstack = torch.cat([image.deepstack for image in batch.features], 1)
            arguments = {"visual_pos_masks": places, "deepstack_visual_embeds": list(deepstack)}
        return self._run(embeddings, batch.positions, batch.attention, cache, logits, **arguments)

    def extend(self, batch: PromptBatch, cache: KVCache, token_ids: Tensor, logits: int = 1) -> Tensor:
        """Read further tokens [B, n] after what the cache holds.

        Returns:
            The logits [B, logits, V] float32 of the last tokens.
        """
        rows, count = token_ids.shape
        token_ids = token_ids.to(batch.token_ids.device)
        column = torch.arange(cache.length, cache.length + count, device=token_ids.device)
        delta = torch.tensor(batch.rope_deltas, device=token_ids.device)[:, None]
        attention = None
        if batch.attention is not None:
            written = batch.attention.new_ones(rows, cache.length + count - batch.attention.shape[1])
            attention = torch.cat((batch.attention, written), 1)
        embeddings = self._vlm.get_input_embeddings()(token_ids)
        return self._run(embeddings, (column + delta).expand(3, -1, -1), attention, cache, logits)

    def _run(
        self, embeddings: Tensor, positions: Tensor, attention: Tensor | None, cache: KVCache, logits: int, **more: Any
    ) -> Tensor:
        output = self._vlm.model.language_model(
            inputs_embeds=embeddings,
            position_ids=positions,
            attention_mask=attention,
            past_key_values=cache,
            use_cache=True,
            **more,
        )
        hidden = output.last_hidden_state
        return self._vlm.lm_head(hidden[:, hidden.shape[1] - logits :]).float()
