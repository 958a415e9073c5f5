"""Draws the tokens of all rows at once on the device; only their ids come to the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from alpamayo_ros.engine.native.philox import gumbel_rows, token_key
from alpamayo_ros.engine.sampling import Key, filter_logits


class DeviceDraw:
    """`draw_each` for rows side by side."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._noise: Callable[[Tensor, int], Tensor] = gumbel_rows
        if device.type == "cuda":
            from alpamayo_ros.engine.kernels.gumbel import gumbel_rows as noise_kernel  # Triton is there where CUDA is

            self._noise = noise_kernel

    def __call__(self, logits: Tensor, temperature: float, top_p: float, keys: Sequence[Key]) -> list[int]:
        """See `DrawTokens`."""
        if temperature > 0:
            words = torch.tensor([token_key(*key) for key in keys])
            noise = self._noise(words.to(self._device, non_blocking=True), logits.shape[-1])
            logits = filter_logits(logits, temperature, top_p) + noise
        tokens: list[int] = logits.argmax(-1).tolist()
        return tokens
