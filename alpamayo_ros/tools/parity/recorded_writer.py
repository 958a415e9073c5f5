"""Writes reasoning as a recording did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from alpamayo_ros.model.vocabulary import Vocabulary


class RecordedWriter:
    """Chooses tokens as the recording did: by its plan or greedily, with NVIDIA's rules of stopping.

    Its code stops one token after the last row has written `<|traj_future_start|>`; that token is never read.
    """

    def __init__(self, settings: Mapping[str, Any], vocabulary: Vocabulary, rows: int) -> None:
        self.rows: list[list[int]] = [[] for _ in range(rows)]
        self.logits: list[Tensor] = []  # [rows, V] of every token
        self._plan = settings["forced_plan"]
        self._asks = settings["question"] is not None
        self._limit = settings["max_new_tokens"]
        self._vocabulary = vocabulary

    def __call__(self, logits: Tensor) -> list[int] | None:
        """The next token of every row; None after the last."""
        self.logits.append(logits.clone())
        done = self._vocabulary.future_start
        finished = not self._asks and all(done in row for row in self.rows)
        tokens = [self._next(index, logits[index]) for index in range(len(self.rows))]
        for row, token in zip(self.rows, tokens, strict=True):
            row.append(token)
        ended = all(self._vocabulary.turn_end in row for row in self.rows)
        return None if finished or ended or len(self.rows[0]) == self._limit else tokens

    def up_to_end(self, row: int) -> list[int]:
        """What a row wrote up to `<|traj_future_start|>`, or everything."""
        tokens = self.rows[row]
        end = self._vocabulary.future_start
        return tokens[: tokens.index(end) + 1] if end in tokens else tokens

    def _next(self, index: int, logits: Tensor) -> int:
        row, step = self.rows[index], len(self.rows[index])
        if self._vocabulary.turn_end in row:
            return self._vocabulary.pad
        if self._plan is None:
            if not self._asks:
                ids = self._vocabulary.trajectory_ids
                logits = logits.clone()
                logits[ids.start : ids.stop] = -torch.inf
            return int(logits.argmax())
        plan = self._plan[index]
        return int(plan[step]) if step < len(plan) else 1000 + 37 * step + 11 * index
