"""What an engine that goes step by step asks of the model it runs on: to read tokens into a cache, and to denoise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from alpamayo_ros.model.action_space import UnicycleActionSpace
from alpamayo_ros.model.backbone import ImageFeatures, PromptBatch
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import ImagePatches
from alpamayo_ros.model.vocabulary import Vocabulary

Reads = TypeVar("Reads", contravariant=True)  # the model's own kind of cache


class Cache(Protocol):
    """Keys and values of rows of tokens, in columns that all rows share; before a shorter prompt stands padding."""

    @property
    def length(self) -> int:
        """Columns that are written."""

    def truncate(self, length: int) -> None:
        """Forget the columns from `length` on."""

    def branch(self, rows: Sequence[int], length: int, capacity: int) -> Any:
        """A cache of its own that begins with the first `length` columns of the given rows."""

    def prefix(self, ends: Sequence[int], padding: Sequence[int], rope_deltas: Sequence[int]) -> Any:
        """What the expert reads. See KVCache."""


class LanguageModel(Protocol[Reads]):
    """Reads tokens into a cache, and tells what comes next."""

    def read(self, batch: PromptBatch, cache: Reads, logits: int = 1) -> Tensor:
        """Read prompts into an empty cache.

        Returns:
            The logits [B, logits, V] float32 of the last tokens: what comes after each.
        """

    def extend(self, batch: PromptBatch, cache: Reads, token_ids: Tensor, logits: int = 1) -> Tensor:
        """Read further tokens [B, n] after them, from any device; the same is returned, and holds until the next call.

        With `logits` 0 it is [B, 0, V]: where only keys and values are wanted.
        """


class VisionModel(Protocol):
    """The vision tower."""

    def encode(self, patches: ImagePatches) -> list[ImageFeatures]:
        """Encode images; each attends only to itself."""

    def encode_each(self, patches: Sequence[ImagePatches]) -> list[ImageFeatures]:
        """Encode single images; the features of each are the same in any company."""


class Backbone(LanguageModel[Reads], VisionModel, Protocol[Reads]):
    """Both."""


class ResidentModel(Protocol):
    """A loaded model: AlpamayoModel, which runs transformers' backbone, or the native one."""

    @property
    def config(self) -> ModelConfig:
        """The checkpoint's."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The checkpoint's."""

    @property
    def action_space(self) -> UnicycleActionSpace:
        """The checkpoint's."""

    @property
    def backbone(self) -> Backbone[Any]:
        """It reads the model's own caches alone."""

    @property
    def device(self) -> torch.device:
        """Where it runs."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""

    @property
    def checkpoint_hash(self) -> str:
        """See Checkpoint."""

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""

    @property
    def max_tokens(self) -> int:
        """Of a prompt and its reasoning."""

    def new_cache(self, capacity: int) -> Any:
        """An empty cache for so many columns and what `room` says. It may take the memory of the one before."""

    def room(self, trajectories: int) -> int:
        """Columns of a row's cache that it takes to denoise so many trajectories after it."""

    def denoise(
        self, prefix: Any, without_route: Any, weight: float, samples: int, noise: Tensor, steps: int
    ) -> Tensor:
        """Follow the flow from noise to normalised actions.

        Args:
            prefix: B rows, from a cache.
            without_route: The same without the route, which the velocity is pushed away from; None: no guidance.
            weight: Of the guidance.
            samples: G trajectories after each row.
            noise: [B G, N, 2] float32, the samples of one row after another.
            steps: Of Euler's method.

        Returns:
            [B G, N, 2] float32.
        """
