"""Qwen3-VL's multimodal rotary positions: one number for text, three (time, row, column) for an image's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def prompt_positions(length: int, images: Sequence[range], grids: Sequence[tuple[int, int]]) -> tuple[Tensor, int]:
    """Positions of a prompt's tokens, and what to add to a slot number after it.

    Text counts on by one. An image of h x w merged tokens that starts at position p has the time p, the rows p to
    p + h - 1 and the columns p to p + w - 1; the text after it goes on at p + max(h, w).

    Args:
        length: of the prompt, in tokens.
        images: the image tokens of each image, in order.
        grids: rows and columns of each image, in merged tokens.

    Returns:
        [3, length] int64, and the delta: the position after the prompt minus its length.
    """
    positions = torch.empty(3, length, dtype=torch.int64)
    slot = position = 0
    for tokens, (rows, columns) in zip(images, grids, strict=True):
        text = tokens.start - slot
        positions[:, slot : tokens.start] = position + torch.arange(text)
        position += text
        positions[0, tokens.start : tokens.stop] = position
        positions[1, tokens.start : tokens.stop] = position + torch.arange(rows).repeat_interleave(columns)
        positions[2, tokens.start : tokens.stop] = position + torch.arange(columns).repeat(rows)
        position += max(rows, columns)
        slot = tokens.stop
    positions[:, slot:] = position + torch.arange(length - slot)
    return positions, position - slot


def following_positions(first_slot: int, count: int, delta: int, device: torch.device | str = "cpu") -> Tensor:
    """Positions [3, count] of tokens after the prompt: slot + delta on all three axes."""
    return (torch.arange(first_slot, first_slot + count, device=device) + delta).expand(3, count)
