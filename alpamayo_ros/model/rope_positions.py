"""Rotary positions of a prompt with images: M-RoPE as Qwen3-VL counts it (transformers, models/qwen3_vl).

Text counts up on all three axes (time, row, column) together. An image starts where the text before it ends; its
tokens share one time and count rows and columns from there; the text after it goes on behind the larger side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from alpamayo_ros.model.prompt import Prompt

KEPT = 16  # prompts of one shape: from tick to tick it stays


@dataclass(frozen=True, eq=False)
class RopePositions:
    """Positions of the prompt's tokens, and how the count goes on after it; kept for others, so never written to."""

    prompt: Tensor  # [3, P] int64: time, row, column
    delta: int  # position minus index of every token after the prompt


def rope_positions(prompt: Prompt, sizes: Sequence[tuple[int, int]]) -> RopePositions:
    """Count the positions of a prompt.

    Args:
        prompt: With the image tokens of each image in one piece.
        sizes: Rows and columns of tokens of each image.
    """
    return _positions(prompt.images, len(prompt), tuple(sizes))


@lru_cache(maxsize=KEPT)
def _positions(images: tuple[range, ...], length: int, sizes: tuple[tuple[int, int], ...]) -> RopePositions:
    pieces: list[Tensor] = []
    index = position = 0
    for image, (rows, columns) in zip(images, sizes, strict=True):
        text = image.start - index
        pieces.append(torch.arange(position, position + text).expand(3, -1))
        position += text
        row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        pieces.append(torch.stack((torch.zeros_like(row), row, column)).flatten(1) + position)
        position += max(rows, columns)
        index = image.stop
    text = length - index
    pieces.append(torch.arange(position, position + text).expand(3, -1))
    return RopePositions(torch.cat(pieces, 1), position + text - length)
