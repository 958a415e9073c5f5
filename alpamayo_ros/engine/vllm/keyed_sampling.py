"""Keyed randomness inside vLLM: the token at a place of a sample is the transformers engine's, bit for bit.

vLLM samples greedily, and this logits processor makes the argmax the draw: it filters the logits and adds the Gumbel
noise of (seed, sample, place). See engine/sampling.py.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from alpamayo_ros.engine.sampling import filter_logits, gumbel_noise
from alpamayo_ros.engine.vllm.jobs import DRAW_ARGUMENT, Draw

MAKERS = 2  # threads


class _Row:
    """One request's draws. The next place's noise is made while the model runs, since it depends on nothing written."""

    def __init__(self, draw: Draw, written: list[int]) -> None:
        self.draw = draw
        self._written = written  # vLLM's own list, which grows
        self._ahead: tuple[int, Future[Tensor]] | None = None

    def noise(self, size: int, maker: Executor) -> Tensor:
        """[size] for the token that comes now."""
        place = len(self._written)
        made = self._ahead[1] if self._ahead is not None and self._ahead[0] == place else self._make(place, size, maker)
        self._ahead = (place + 1, self._make(place + 1, size, maker))
        return made.result()

    def _make(self, place: int, size: int, maker: Executor) -> Future[Tensor]:
        return maker.submit(gumbel_noise, self.draw.seed, self.draw.sample, place, size)


class KeyedSampling(LogitsProcessor):
    """Adds each request's noise to its row; rows without a Draw stay greedy."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        self._rows: dict[int, _Row] = {}
        self._maker = ThreadPoolExecutor(MAKERS, thread_name_prefix="noise")

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
            draw = (parameters.extra_args or {}).get(DRAW_ARGUMENT)
            if draw is not None:
                self._rows[row] = _Row(Draw(**draw), written)
        for source, target, direction in batch_update.moved:
            moved, other = self._rows.pop(source, None), self._rows.pop(target, None)
            if moved is not None:
                self._rows[target] = moved
            if other is not None and direction == MoveDirectionality.SWAP:
                self._rows[source] = other

    def apply(self, logits: Tensor) -> Tensor:
        """Turn the argmax of [rows, V] float32 logits into the draw."""
        for row, one in self._rows.items():
            noise = one.noise(logits.shape[-1], self._maker).to(logits.device)
            logits[row] = filter_logits(logits[row], one.draw.temperature, one.draw.top_p) + noise
        return logits
