"""The backbone over a batch of ticks whose images stand at the same places: gradients flow, and nothing loops.

Transformers runs the vision tower's attention image by image, and its cache belongs to inference. Here the same weights
go through the same formulas (transformers, models/qwen3_vl), all images at once; the tests compare both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from alpamayo_ros.model.backbone import VISION_ROPE_THETA
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.pointwise import norm


@dataclass(frozen=True, eq=False)
class ImageFeatureBatch:
    """The images of B ticks as the language model takes them."""

    embeddings: Tensor  # [B, tokens of all images, hidden_size]
    deepstack: tuple[Tensor, ...]  # likewise, added to the outputs of the first layers


@dataclass(frozen=True, eq=False)
class ReadPrefix:
    """What B prompts with their reasoning left behind."""

    hidden: Tensor  # [B, S, hidden_size] after the final norm
    before_last: Tensor  # [B, S, hidden_size], the input of the last layer: what its keys and values are made of
    keys: tuple[Tensor, ...]  # per layer [B, kv_heads, S, head_dim], rotated
    values: tuple[Tensor, ...]  # likewise, not rotated


class VisionForward(nn.Module):
    """The vision tower over images of one size, `rows` x `columns` patches."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, visual: nn.Module, rows: int, columns: int) -> None:
        super().__init__()
        self.visual: Any = visual
        config: Any = visual.config
        self.heads = int(config.num_heads)
        self.merge = int(config.spatial_merge_size)
        self.deepstack_layers = list(config.deepstack_visual_indexes)
        self.rows, self.columns = rows, columns
        cosines, sines = self._angles(config.hidden_size // self.heads)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, pixels: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Encode images.

        Args:
            pixels: [N, patches, 3 * temporal_patch_size * patch_size^2], as `model.images.patchify` makes them.

        Returns:
            [N, tokens, out_hidden_size], and the same for every deepstack level.
        """
        visual = self.visual
        kernel = visual.patch_embed.proj
        hidden = functional.linear(pixels, kernel.weight.flatten(1), kernel.bias) + self._positions()
        levels = []
        for index, block in enumerate(visual.blocks):
            hidden = hidden + self._attend(block.attn, block.norm1(hidden))
            hidden = hidden + block.mlp(block.norm2(hidden))
            if index in self.deepstack_layers:
                merger = visual.deepstack_merger_list[self.deepstack_layers.index(index)]
                levels.append(self._merged(merger, hidden))
        return self._merged(visual.merger, hidden), levels

    def _attend(self, attention: Any, hidden: Tensor) -> Tensor:
        count, patches, size = hidden.shape
        query, key, value = attention.qkv(hidden).view(count, patches, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key = (_rotated(states, self.cosines, self.sines) for states in (query, key))
        mixed = functional.scaled_dot_product_attention(query.to(value.dtype), key.to(value.dtype), value)
        return attention.proj(mixed.transpose(1, 2).reshape(count, patches, size))

    def _merged(self, merger: Any, hidden: Tensor) -> Tensor:
        count = hidden.shape[0]
        return merger(hidden.reshape(-1, hidden.shape[-1])).view(count, -1, merger.linear_fc2.out_features)

    def _positions(self) -> Tensor:
        """The learned square grid, stretched to the image's: [patches, hidden_size]."""
        table = self.visual.pos_embed.weight
        side = round(table.shape[0] ** 0.5)
        grid = table.view(1, side, side, -1).permute(0, 3, 1, 2)
        size = (self.rows, self.columns)
        stretched = functional.interpolate(grid.float(), size=size, mode="bilinear", align_corners=True)
        return self._in_blocks(stretched[0].permute(1, 2, 0))

    def _angles(self, head_dim: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [patches, head_dim]: a quarter of a head turns by the row, the next by the column."""
        count = head_dim // 4
        frequencies = 1.0 / VISION_ROPE_THETA ** (torch.arange(count, dtype=torch.float32) / count)
        axes = torch.meshgrid(torch.arange(self.rows), torch.arange(self.columns), indexing="ij")
        angle = self._in_blocks((torch.stack(axes, -1)[..., None] * frequencies).flatten(-2))
        angle = torch.cat((angle, angle), -1)
        return angle.cos(), angle.sin()

    def _in_blocks(self, grid: Tensor) -> Tensor:
        """[rows, columns, C] to [patches, C] in the order of patches: blocks of merge x merge."""
        merge = self.merge
        blocks = grid.view(self.rows // merge, merge, self.columns // merge, merge, -1)
        return blocks.transpose(1, 2).reshape(self.rows * self.columns, -1)


class TextForward(nn.Module):
    """The language model over sequences of S tokens, padded on the right, that share their rotary positions."""

    cosines: Tensor
    sines: Tensor
    image_columns: Tensor

    def __init__(self, text: nn.Module, config: ModelConfig, positions: Tensor, image_columns: Tensor) -> None:
        """Get ready.

        Args:
            text: Transformers' language model.
            config: The checkpoint's.
            positions: [3, S] int64, of every column on the three axes.
            image_columns: [tokens of all images] int64, where they stand.
        """
        super().__init__()
        self.text: Any = text
        geometry = config.backbone.text
        self.head_dim = geometry.head_dim
        cosines, sines = _text_angles(config, positions)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)
        self.register_buffer("image_columns", image_columns, persistent=False)

    def forward(self, token_ids: Tensor, images: ImageFeatureBatch) -> ReadPrefix:
        """Read token ids [B, S]; what stands at the images' columns doesn't count."""
        hidden = self.text.embed_tokens(token_ids)
        hidden = hidden.index_copy(1, self.image_columns, images.embeddings.to(hidden.dtype))
        keys, values = [], []
        before_last = hidden
        for index, layer in enumerate(self.text.layers):
            before_last = hidden
            attended, key, value = self._attend(layer.self_attn, _normed(layer.input_layernorm, hidden))
            hidden = hidden + attended
            hidden = hidden + layer.mlp(_normed(layer.post_attention_layernorm, hidden))
            keys.append(key)
            values.append(value)
            if index < len(images.deepstack):
                hidden = hidden.index_add(1, self.image_columns, images.deepstack[index].to(hidden.dtype))
        return ReadPrefix(_normed(self.text.norm, hidden), before_last, tuple(keys), tuple(values))

    def _attend(self, attention: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        shape = (*hidden.shape[:2], -1, self.head_dim)
        query = _normed(attention.q_norm, attention.q_proj(hidden).view(shape)).transpose(1, 2)
        key = _normed(attention.k_norm, attention.k_proj(hidden).view(shape)).transpose(1, 2)
        value = attention.v_proj(hidden).view(shape).transpose(1, 2)
        query = _rotated(query, self.cosines, self.sines).to(value.dtype)
        key = _rotated(key, self.cosines, self.sines).to(value.dtype)
        groups = query.shape[1] // key.shape[1]
        mixed = functional.scaled_dot_product_attention(
            query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1), is_causal=True
        )
        return attention.o_proj(mixed.transpose(1, 2).flatten(2)), key, value


def _normed(layer: Any, hidden: Tensor) -> Tensor:
    return norm(hidden, layer.weight, layer.variance_epsilon)


def _rotated(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Turn the halves of [..., S, dim] as pairs."""
    first, second = states.chunk(2, -1)
    return states * cosines + torch.cat((-second, first), -1) * sines


def _text_angles(config: ModelConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines [S, head_dim]: the pairs of a head take turns between time, row and column."""
    section: Any = config.backbone.json["text_config"]
    rope = section.get("rope_parameters") or section.get("rope_scaling") or {}
    half = config.backbone.text.head_dim // 2
    frequencies = 1.0 / config.backbone.text.rope_theta ** (torch.arange(half, dtype=torch.float32) / half)
    angles = positions[..., None].float() * frequencies
    chosen = angles[0].clone()
    for axis, count in enumerate(rope.get("mrope_section", [24, 20, 20])[1:], start=1):
        chosen[:, axis : 3 * count : 3] = angles[axis, :, axis : 3 * count : 3]
    chosen = torch.cat((chosen, chosen), -1)
    return chosen.cos(), chosen.sin()
