"""Draws the tokens of all rows at once on the device; only their ids come to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from alpamayo_ros.engine.native.philox import gumbel_rows, token_key
from alpamayo_ros.engine.sampling import Key, filter_logits
from alpamayo_ros.model.to_device import to_device

NOTHING = range(0)
# logits [R, V] float32, words [R, 2] int64 (`token_key`), temperature and top_p [2] float32, token ids that are never
# drawn -> tokens [R] int64. Everything lies on the device, so that a graph can hold it.
DrawRows = Callable[[Tensor, Tensor, Tensor, range], Tensor]


def draw_rows(logits: Tensor, words: Tensor, settings: Tensor, forbidden: range) -> Tensor:
    """In plain torch, with the settings read on the host: see DrawRows."""
    temperature, top_p = settings.tolist()
    logits = logits.clone()
    logits[:, forbidden.start : forbidden.stop] = -torch.inf
    if temperature > 0:
        logits = filter_logits(logits, temperature, top_p) + gumbel_rows(words, logits.shape[-1])
    return logits.argmax(-1)


def drawing_for(device: torch.device) -> DrawRows:
    """The kernels on CUDA, plain torch elsewhere."""
    if device.type != "cuda":
        return draw_rows
    from alpamayo_ros.engine.kernels.draw import draw_rows as by_kernels  # Triton is there where CUDA is

    return by_kernels


class DeviceDraw:
    """`draw_each` for rows side by side."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._draw = drawing_for(device)

    def __call__(self, logits: Tensor, temperature: float, top_p: float, keys: Sequence[Key]) -> list[int]:
        """See `DrawTokens`."""
        tokens: list[int] = self.queue(logits, temperature, top_p, keys, NOTHING).tolist()
        return tokens

    def queue(self, logits: Tensor, temperature: float, top_p: float, keys: Sequence[Key], forbidden: range) -> Tensor:
        """The same on the device, which nobody waits for: [R] int64, none of the forbidden ones."""
        words = to_device(torch.tensor([token_key(*key) for key in keys]), self._device)
        settings = to_device(torch.tensor([temperature, top_p]), self._device)
        return self._draw(logits, words, settings, forbidden)
