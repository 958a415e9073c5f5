"""Qwen3-VL's vision tower for one image at a time; on CUDA a captured graph for every size of image.

The weights are transformers' modules, and what they compute is its models/qwen3_vl. The image's size fixes the learned
positions (the checkpoint's square grid, resampled linearly) and the rotary angles, so both are made once per size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from alpamayo_ros.engine.native.attention import fastest_attention
from alpamayo_ros.engine.replayed import GraphMemory, Replayed
from alpamayo_ros.model.backbone import VISION_ROPE_THETA, ImageFeatures
from alpamayo_ros.model.images import ImagePatches

LANES = 4  # images side by side: a rig's new ones


class VisionTower:
    """Encodes images.

    Args:
        visual: Transformers' vision model.
        device: On CUDA graphs are captured, one for every lane and size of image.
    """

    def __init__(self, visual: Any, device: torch.device) -> None:
        self._visual = visual
        self._merge = int(visual.config.spatial_merge_size)
        lanes = range(LANES if device.type == "cuda" else 0)
        self._lanes = [_Lane(torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)) for _ in lanes]
        self._towers: dict[tuple[int, int, int], _Tower] = {}  # by lane, rows and columns

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        """Each image alone."""
        return self.encode_each(patches.each())

    def encode_each(self, patches: Sequence[ImagePatches]) -> list[ImageFeatures]:
        """Single images; a size that wasn't seen before is captured, which takes a moment."""
        images = [(each.grids[0], each.pixel_values) for each in patches]
        features: list[ImageFeatures] = []
        while len(features) < len(images):
            features += self._encode(images[len(features) :][: max(1, len(self._lanes))])
        return features

    def _encode(self, images: Sequence[tuple[tuple[int, int], Tensor]]) -> list[ImageFeatures]:
        """As many images as there are lanes, side by side: one alone leaves much of a GPU idle."""
        towers = [self._tower_for(lane, *grid) for lane, (grid, _) in enumerate(images)]
        encoded = [tower.start(pixels) for tower, (_, pixels) in zip(towers, images, strict=True)]
        for tower in towers:
            tower.join()
        return [
            ImageFeatures(embeddings.clone(), deepstack.clone(), rows // self._merge, columns // self._merge)
            for (embeddings, deepstack), ((rows, columns), _) in zip(encoded, images, strict=True)
        ]

    def _tower_for(self, lane: int, rows: int, columns: int) -> _Tower:
        key = (lane, rows, columns)
        if key not in self._towers:
            self._towers[key] = _Tower(self._visual, rows, columns, self._lanes[lane] if self._lanes else None)
        return self._towers[key]


@dataclass(frozen=True, eq=False)
class _Lane:
    """What graphs that are replayed side by side have each of their own."""

    memory: GraphMemory
    stream: torch.cuda.Stream


class _Tower:
    """The tower for images of rows x columns patches, on a lane or, on a CPU, on none."""

    def __init__(self, visual: Any, rows: int, columns: int, lane: _Lane | None) -> None:
        self._visual = visual
        self._lane = lane
        weight = visual.patch_embed.proj.weight
        self._dtype, device = weight.dtype, weight.device
        row, column = _places(rows, columns, int(visual.config.spatial_merge_size), device)
        self._positions = _resampled(visual.pos_embed.weight, row, column, rows, columns).to(self._dtype)
        self._cosines, self._sines = _rotary(row, column, visual.blocks[0].attn.head_dim)
        self._rotate = _rotation_for(device)
        self._pixels = torch.zeros(rows * columns, weight[0].numel(), device=device)
        self._replayed = Replayed[tuple[Tensor, Tensor]]()
        if lane is not None:
            self._replayed.capture(self._tower, lane.memory, lane.stream)

    def start(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Begin with patches [rows columns, values].

        Returns:
            Embeddings [T, hidden] and deepstack [layers, T, hidden], which hold from `join` to the next `start`.
        """
        if self._lane is None:
            self._pixels.copy_(pixels)
            return self._replayed(self._tower)
        self._lane.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._lane.stream):
            self._pixels.copy_(pixels)
            return self._replayed(self._tower)

    def join(self) -> None:
        """Let what is queued next wait for the result."""
        if self._lane is not None:
            torch.cuda.current_stream().wait_stream(self._lane.stream)

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
        self._rotate(states, self._cosines, self._sines)
        query, key, value = (each.transpose(0, 1)[None] for each in states.unbind(1))  # [1, heads, patches, dim]
        with fastest_attention():
            mixed = functional.scaled_dot_product_attention(query, key, value)
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
    """Cosines and sines [patches, head_dim] float32: a quarter of the head turns by the row, one by the column."""
    quarter = head_dim // 4
    frequencies = 1.0 / VISION_ROPE_THETA ** (torch.arange(quarter, dtype=torch.float32) / quarter)
    frequencies = frequencies.to(row.device)
    angle = torch.cat((row[:, None] * frequencies, column[:, None] * frequencies), -1)
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def _rotate_in_place(states: Tensor, cosines: Tensor, sines: Tensor) -> None:
    """Turn the halves of each head of queries and keys [T, 3, heads, dim] as pairs, in float32."""
    both = states[:, :2].float()
    first, second = both.chunk(2, -1)
    turned = torch.cat((-second, first), -1)
    states[:, :2] = both * cosines[:, None, None] + turned * sines[:, None, None]


def _rotation_for(device: torch.device) -> Callable[[Tensor, Tensor, Tensor], None]:
    """The kernel on CUDA, plain torch elsewhere."""
    if device.type != "cuda":
        return _rotate_in_place
    from alpamayo_ros.engine.kernels.vision_rotary import rotate_in_place  # Triton is there where CUDA is

    return rotate_in_place
