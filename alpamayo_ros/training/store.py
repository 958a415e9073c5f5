"""All examples on the device, and batches of them by keyed randomness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import FRAMES_PER_CAMERA
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import ImageConfig, patchify
from alpamayo_ros.model.vocabulary import Vocabulary
from alpamayo_ros.training.examples import DriveExamples
from alpamayo_ros.training.layout import TokenTables
from alpamayo_ros.training.observations import FIRST_TICK


@dataclass(frozen=True, eq=False)
class Batch:
    """B ticks."""

    images: Tensor  # [B 16, 3, H, W] uint8, camera by camera, oldest first
    token_ids: Tensor  # [B, S] int64: prompt, reasoning and the two closing tokens, padded on the right
    prompt_lengths: Tensor  # [B] int64
    reasoning: Tensor  # [B, R] int64: the reasoning with its closing tokens alone, padded
    reasoning_lengths: Tensor  # [B] int64
    actions: Tensor  # [B, 64, 2] normalised
    paths: Tensor  # [B, 64, 2] m

    @property
    def ends(self) -> Tensor:
        """[B]: where each sequence ends."""
        return self.prompt_lengths + self.reasoning_lengths

    def pixels(self, config: ImageConfig) -> Tensor:
        """[B 16, patches, values] float32, as inference makes them."""
        return patchify(self.images, config)


class ExampleStore:
    """Grows drive by drive up to a capacity that is taken at once, so that the device's memory stays in one piece."""

    def __init__(
        self,
        config: ModelConfig,
        vocabulary: Vocabulary,
        image_size: tuple[int, int],
        longest: int,
        frames: int,
        device: torch.device,
    ) -> None:
        """Get ready for as many `frames` of every camera; the other arguments are those of TokenTables."""
        self.tables = TokenTables(config, vocabulary, image_size, longest)
        self.device = device
        self._first_history = vocabulary.history_ids.start
        self._images: Tensor | None = None
        self._capacity = frames
        self._frames = 0
        self.drives = 0  # that were taken in
        self._columns: dict[str, list[Tensor]] = {}
        self._joined: dict[str, Tensor] = {}
        self._prompts = self._prompt_lengths = self._reasonings = self._reasoning_lengths = torch.empty(0)

    def __len__(self) -> int:
        return sum(map(len, self._columns.get("frame", [])))

    def add(self, drives: list[DriveExamples]) -> None:
        """Take drives in."""
        for drive in drives:
            self._add(drive)
        self.drives += len(drives)
        self._joined = {name: torch.cat(parts) for name, parts in self._columns.items()}
        self.tables.check_lengths()
        self._prompts, self._prompt_lengths = (each.to(self.device) for each in self.tables.padded_prompts())
        self._reasonings, self._reasoning_lengths = (each.to(self.device) for each in self.tables.padded_reasonings())

    def batch(self, ticks: Tensor, keep_navigation: Tensor) -> Batch:
        """The batch of some ticks.

        Args:
            ticks: [B] int64 on the device.
            keep_navigation: [B] bool; where it is False the navigation text is left out.
        """
        assert self._images is not None
        its = {name: column[ticks] for name, column in self._joined.items()}
        moments = torch.arange(1 - FRAMES_PER_CAMERA, 1, device=self.device)
        images = self._images[its["frame"][:, None] + moments]  # [B, moments, cameras, H, W, 3]
        prompt = torch.where(keep_navigation, its["prompt"], 0)
        prompts, lengths = self._prompts[prompt], self._prompt_lengths[prompt]
        reasoning = self._reasonings[its["reasoning"]]
        history = self.tables.layout.history
        prompts[:, history.start : history.stop] = its["history"] + self._first_history
        after = torch.arange(prompts.shape[1], device=self.device) - lengths[:, None]
        own = reasoning.gather(1, after.clamp(0, reasoning.shape[1] - 1))
        return Batch(
            images=images.transpose(1, 2).flatten(0, 2).permute(0, 3, 1, 2).contiguous(),
            token_ids=torch.where((after >= 0) & (after < reasoning.shape[1]), own, prompts),
            prompt_lengths=lengths,
            reasoning=reasoning,
            reasoning_lengths=self._reasoning_lengths[its["reasoning"]],
            actions=its["actions"],
            paths=its["paths"],
        )

    def draw(self, count: int, drop_navigation: float, generator: torch.Generator) -> Batch:
        """A batch of `count` ticks drawn at random, each without its navigation with this probability.

        The generator is of the CPU, so that a seed gives the same batches on every device.
        """
        ticks = torch.randint(len(self), (count,), generator=generator)
        keep = torch.rand(count, generator=generator) >= drop_navigation
        return self.batch(ticks.to(self.device), keep.to(self.device))

    def _add(self, drive: DriveExamples) -> None:
        images = torch.from_numpy(drive.images)
        if self._images is None:
            self._images = torch.empty((self._capacity, *images.shape[1:]), dtype=torch.uint8, device=self.device)
        start, self._frames = self._frames, self._frames + len(images)
        self._images[start : self._frames] = images.to(self.device)
        prompts = [self.tables.prompt_row(str(text) or None) for text in drive.navigation]
        reasonings = [self.tables.reasoning_row(str(text)) for text in drive.sentences]
        columns = {
            "frame": torch.arange(start + FIRST_TICK, start + FIRST_TICK + len(drive)),
            "prompt": torch.tensor(prompts),
            "reasoning": torch.tensor(reasonings),
            "history": torch.from_numpy(drive.history_bins.astype(np.int64)),
            "actions": torch.from_numpy(drive.actions),
            "paths": torch.from_numpy(drive.paths),
        }
        for name, column in columns.items():
            self._columns.setdefault(name, []).append(column.to(self.device))
