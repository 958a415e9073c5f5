"""Steps that follow each other on the device: each reads the tokens that the one before it has drawn."""

from __future__ import annotations

import torch
from torch import Tensor

from alpamayo_ros.engine.native.decode_step import DecodeStep


class Following:
    """A step that is under way, and the next ones: a step is queued before the host knows what it reads."""

    def __init__(self, step: DecodeStep, drawn: Tensor) -> None:
        """Follow what `step` has drawn: [R] int64."""
        self._step = step
        self._rows = len(drawn)
        self._queued = [_OnHost(drawn)]

    def go_on(self) -> None:
        """Queue a step that reads what the last one draws."""
        self._queued.append(_OnHost(self._step.go_on(self._rows)))

    def drawn(self) -> list[int]:
        """Wait for what the first step draws whose tokens weren't asked for yet."""
        return self._queued.pop(0).tokens()


class _OnHost:
    """Numbers on their way to the host."""

    def __init__(self, numbers: Tensor) -> None:
        cuda = numbers.is_cuda
        self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=cuda)
        self._numbers.copy_(numbers, non_blocking=True)
        self._done = torch.cuda.Event() if cuda else None
        if self._done is not None:
            self._done.record()

    def tokens(self) -> list[int]:
        if self._done is not None:
            self._done.synchronize()
        tokens: list[int] = self._numbers.tolist()
        return tokens
