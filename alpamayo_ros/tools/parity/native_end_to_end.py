"""Checks end_to_end_<checkpoint>.npz in the native engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.paged_cache import KVPrefix
from alpamayo_ros.engine.native.engine import NativeEngine
from alpamayo_ros.engine.native.kv_cache import PagedCache
from alpamayo_ros.engine.native.model import NativeModel
from alpamayo_ros.engine.native.sizes import Sizes
from alpamayo_ros.engine.stepwise_engine import StepwiseEngine
from alpamayo_ros.model.alpamayo import AlpamayoModel
from alpamayo_ros.tools.parity.case import Checker
from alpamayo_ros.tools.parity.end_to_end import EndToEndRun, cases

MOST_TOKENS = 1 << 13  # more than any recording has
SIZES = Sizes(samples=16, sequence_tokens=MOST_TOKENS, cache_tokens=1 << 16, prompt_tokens=range(1, MOST_TOKENS))


class NativeRun(EndToEndRun):
    """One case, run again by the native engine's model."""

    @staticmethod
    def model_of(loaded: AlpamayoModel) -> NativeModel:
        """See EndToEndRun."""
        return NativeModel.take(loaded, SIZES)

    def engine_of(self, model: NativeModel) -> StepwiseEngine:
        """See EndToEndRun."""
        return NativeEngine(model, self.name, max_samples=1, max_cameras=7)

    def readable(self, recorded: Tensor, kv: PagedCache) -> Tensor:
        """The cache has no padding; `written` shows zeros in its place."""
        first = kv.length - recorded.shape[2]  # the column of the recording that comes first
        column = first + torch.arange(recorded.shape[2], device=recorded.device)
        padding = torch.tensor(kv.padding, device=recorded.device)
        return recorded.masked_fill((column < padding[:, None])[:, None, :, None], 0)

    def positions_and_mask(
        self, prefix: Sequence[KVPrefix], padding: Sequence[int], length: int
    ) -> tuple[Tensor, Tensor]:
        """Rows stand in blocks of their own: what NVIDIA's code masks is what a row doesn't have."""
        column = torch.arange(length)
        first = torch.tensor(padding)[:, None]
        end = first + torch.tensor([row.length for row in prefix])[:, None]
        return torch.tensor([row.first_position for row in prefix]), (column < first) | (column >= end)


NATIVE_END_TO_END = Checker("end_to_end_*.npz", partial(cases, kind=NativeRun))
