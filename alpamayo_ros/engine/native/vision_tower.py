"""Qwen3-VL's vision tower for one image at a time; on CUDA a captured graph for every size of image.

The weights are transformers' modules, and what they compute is its models/qwen3_vl. The image's size fixes the learned
positions (the checkpoint's square grid, resampled linearly) and the rotary angles, so both are made once per size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from alpamayo_ros.engine.native.graph import GraphMemory, Replayed
from alpamayo_ros.model.backbone import VISION_ROPE_THETA, ImageFeatures
from alpamayo_ros.model.images import ImagePatches

_BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class VisionTower:
    """Encodes images.

    Args:
        visual: Transformers' vision model.
        memory: That captured graphs share; None: nothing is captured.
    """

    def __init__(self, visual: Any, memory: GraphMemory | None) -> None:
        self._visual = visual
        self._memory = memory
        self._sizes: dict[tuple[int, int], _Size] = {}
        self._merge = int(visual.config.spatial_merge_size)

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        """Each image alone; a size that wasn't seen before is captured, which takes a moment."""
        features = []
        counts = [rows * columns for rows, columns in patches.grids]
        for (rows, columns), pixels in zip(patches.grids, patches.pixel_values.split(counts), strict=True):
            if (rows, columns) not in self._sizes:
                self._sizes[rows, columns] = _Size(self._visual, rows, columns, self._memory)
            embeddings, deepstack = self._sizes[rows, columns].run(pixels)
            features.append(ImageFeatures(embeddings, deepstack, rows // self._merge, columns // self._merge))
        return features


class _Size:
    """The tower for images of rows x columns patches."""

    def __init__(self, visual: Any, rows: int, columns: int, memory: GraphMemory | None) -> None:
        self._visual = visual
        weight = visual.patch_embed.proj.weight
        self._dtype, device = weight.dtype, weight.device
        row, column = _places(rows, columns, int(visual.config.spatial_merge_size), device)
        self._positions = _resampled(visual.pos_embed.weight, row, column, rows, columns).to(self._dtype)
        self._cosines, self._sines = _rotary(row, column, visual.blocks[0].attn.head_dim)
        self._pixels = torch.zeros(rows * columns, weight[0].numel(), device=device)
        self._replayed = Replayed(self._tower)
        if memory is not None:
            self._replayed.capture(memory)

    def run(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings [T, hidden] and deepstack [layers, T, hidden] of patches [rows columns, values]."""
        self._pixels.copy_(pixels)
        embeddings, deepstack = self._replayed()
        return embeddings.clone(), deepstack.clone()

    def _tower(self) -> tuple[Tensor, Tensor]:
        visual = self._visual
        proj = visual.patch_embed.proj
        hidden = functional.linear(self._pixels.to(self._dtype), proj.weight.flatten(1), proj.bias) + self._positions
        deepstack = []
        for index, block in enumerate(visual.blocks):
            hidden = hidden + self._attention(block.attn, block.norm1(hidden))
            hidden = hidden + block.mlp(block.norm2(hidden))
            if index in visual.deepstack_visual_indexes:
                merger = visual.deepstack_merger_list[list(visual.deepstack_visual_indexes).index(index)]
                deepstack.append(merger(hidden))
        return visual.merger(hidden), torch.stack(deepstack)

    def _attention(self, attention: Any, hidden: Tensor) -> Tensor:
        states = attention.qkv(hidden).unflatten(-1, (3, attention.num_heads, -1))
        query, key, value = states.unbind(1)  # [patches, heads, dim]
        turned = (_rotate(each.float(), self._cosines, self._sines).to(self._dtype) for each in (query, key))
        by_head = [each.transpose(0, 1)[None] for each in (*turned, value)]
        with sdpa_kernel(_BACKENDS, set_priority=True):
            mixed = functional.scaled_dot_product_attention(by_head[0], by_head[1], by_head[2])
        result: Tensor = attention.proj(mixed[0].transpose(0, 1).flatten(1))
        return result


def _places(rows: int, columns: int, merge: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column of every patch, in blocks of merge x merge, blocks and the patches inside row by row."""
    grid = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"))
    blocks = grid.view(2, rows // merge, merge, columns // merge, merge).transpose(2, 3)
    row, column = blocks.reshape(2, -1).to(device)
    return row, column


def _resampled(table: Tensor, row: Tensor, column: Tensor, rows: int, columns: int) -> Tensor:
    """The learned positions of a square grid [side^2, hidden], linearly between its places, corners on corners."""
    side = round(len(table) ** 0.5)
    result = torch.zeros(len(row), table.shape[1], device=table.device)
    across = []
    for place, count in ((row, rows), (column, columns)):
        at = torch.linspace(0, side - 1, count, device=table.device)[place]
        low = at.long()
        across.append(((low, 1 - (at - low)), ((low + 1).clamp(max=side - 1), at - low)))
    for upper, upper_weight in across[0]:
        for left, left_weight in across[1]:
            result += table[upper * side + left].float() * (upper_weight * left_weight)[:, None]
    return result


def _rotary(row: Tensor, column: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines [patches, 1, head_dim] float32: a quarter of the head turns by the row, one by the column."""
    quarter = head_dim // 4
    frequencies = 1.0 / VISION_ROPE_THETA ** (torch.arange(quarter, dtype=torch.float32) / quarter)
    frequencies = frequencies.to(row.device)
    angle = torch.cat((row[:, None] * frequencies, column[:, None] * frequencies), -1)
    angle = torch.cat((angle, angle), -1)[:, None]
    return angle.cos(), angle.sin()


def _rotate(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    first, second = states.chunk(2, -1)
    return states * cosines + torch.cat((-second, first), -1) * sines
