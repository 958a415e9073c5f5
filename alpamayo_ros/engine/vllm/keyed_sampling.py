"""Keyed randomness inside vLLM: the token at a place of a sample is the transformers engine's, bit for bit.

vLLM samples greedily, and this logits processor makes the argmax the draw: it filters the logits and adds the Gumbel
noise of (seed, sample, place). See engine/sampling.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from alpamayo_ros.engine.sampling import filter_logits, gumbel_noise
from alpamayo_ros.engine.vllm.jobs import DRAW_ARGUMENT, Draw


class KeyedSampling(LogitsProcessor):
    """Adds each request's noise to its row; rows without a Draw stay greedy."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, tuple[Draw, list[int]]] = {}  # by row: the draw, and vLLM's list of what was written

    def is_argmax_invariant(self) -> bool:
        """It changes the argmax: that is its purpose."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow the requests from row to row."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self._rows.pop(row, None)
        for row, parameters, _prompt, written in batch_update.added:
            self._rows.pop(row, None)
            draw = _draw_of(parameters)
            if draw is not None:
                self._rows[row] = (draw, written)
        for source, target, direction in batch_update.moved:
            moved, other = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if other is not None and direction == MoveDirectionality.SWAP:
                self._rows[source] = other

    def apply(self, logits: Tensor) -> Tensor:
        """Turn the argmax of [rows, V] float32 logits into the draw."""
        for row, (draw, written) in self._rows.items():
            noise = gumbel_noise(draw.seed, draw.sample, len(written), logits.shape[-1])
            logits[row] = filter_logits(logits[row], draw.temperature, draw.top_p) + noise.to(logits.device)
        return logits


def _draw_of(parameters: SamplingParams) -> Draw | None:
    fields = (parameters.extra_args or {}).get(DRAW_ARGUMENT)
    return None if fields is None else Draw(**fields)
