"""The newest examples on the device, and batches of them by keyed randomness."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.core.types import FRAMES_PER_CAMERA, ConfigurationError
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.history_tokens import HistoryTokenizer
from alpamayo_ros.model.images import ImageConfig, patchify
from alpamayo_ros.model.vocabulary import Vocabulary
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.training.emphasis import EVENLY, Emphasis
from alpamayo_ros.training.examples import DriveExamples
from alpamayo_ros.training.layout import TokenTables
from alpamayo_ros.training.observations import FIRST_TICK
from alpamayo_ros.training.other_histories import OtherWay
from alpamayo_ros.training.settings import TrainingSettings


@dataclass(frozen=True, eq=False)
class Batch:
    """B ticks."""

    images: Tensor  # [B 16, 3, H, W] uint8, camera by camera, oldest first
    token_ids: Tensor  # [B, S] int64: prompt, reasoning and the two closing tokens, padded on the right
    prompt_lengths: Tensor  # [B] int64
    reasoning: Tensor  # [B, R] int64: the reasoning with its closing tokens alone, padded
    reasoning_lengths: Tensor  # [B] int64
    own_words: Tensor  # [B] bool, whether the reasoning is the expert's; another is read, and not learned
    actions: Tensor  # [B, 64, 2] normalised
    paths: Tensor  # [B, 64, 2] m
    cars: Tensor  # [B, 3] m, m/s and m/s^2 of the car ahead; NaN for none

    @property
    def ends(self) -> Tensor:
        """[B]: where each sequence ends."""
        return self.prompt_lengths + self.reasoning_lengths

    def pixels(self, config: ImageConfig) -> Tensor:
        """[B 16, patches, values] float32, as inference makes them."""
        return patchify(self.images, config)


class ExampleStore:
    """The newest drives, as many as it has room for; the room is taken at once, so that it stays in one piece."""

    def __init__(
        self,
        config: ModelConfig,
        vocabulary: Vocabulary,
        image_size: tuple[int, int],
        longest: int,
        capacity: int,
        device: torch.device,
        emphasis: Emphasis = EVENLY,
    ) -> None:
        """Get ready for `capacity` drives of one length; the other arguments are those of TokenTables."""
        self.tables = TokenTables(config, vocabulary, image_size, longest)
        for sentence in SENTENCE_CLASSES:  # all of them and in this order, whatever drives come first
            self.tables.reasoning_row(sentence)
        self.device = device
        self._first_history = vocabulary.history_ids.start
        self._tokenizer = HistoryTokenizer(config.history)
        self._capacity, self._emphasis = capacity, emphasis
        self._images: Tensor | None = None  # [capacity T, cameras, H, W, 3]
        self._columns: dict[str, Tensor] = {}  # each [capacity M, ...]
        self._histories = torch.empty(0)  # [capacity M, 16, 3], on the CPU, since their encoding waits for its input
        self._weights = torch.empty(0)  # [capacity M] of each tick when it is drawn, on the CPU; 0 where none is yet
        self._weights_until = torch.empty(0)  # [capacity M] their sums up to and with each
        self._ticks = 0  # M, of a drive
        self.drives = 0  # that were taken in, also those that newer ones have taken the place of
        self._skipped = 0  # of them; those never were here
        self._texts = (0, 0)  # prompts and reasonings on the device
        self._prompts = self._prompt_lengths = self._reasonings = self._reasoning_lengths = torch.empty(0)

    def __len__(self) -> int:
        return min(self.drives - self._skipped, self._capacity) * self._ticks

    def skip(self, drives: int) -> None:
        """Count drives as taken in that newer ones have taken the place of; for a store that has none yet."""
        assert self.drives == 0
        self.drives = self._skipped = drives

    def add(self, drives: list[DriveExamples]) -> None:
        """Take drives in; where there is no more room, each takes the place of the oldest.

        Raises:
            ConfigurationError: a drive of another length than the first, or texts that are too long.
        """
        for drive in drives:
            self._add(drive)
        self._weights_until = self._weights.cumsum(0)
        texts = (len(self.tables.prompts), len(self.tables.reasonings))
        if texts != self._texts:
            self.tables.check_lengths()
            self._prompts, self._prompt_lengths = map(self._sent, self.tables.padded_prompts())
            self._reasonings, self._reasoning_lengths = map(self._sent, self.tables.padded_reasonings())
            self._texts = texts

    def batch(
        self,
        ticks: Tensor,
        keep_navigation: Tensor,
        way: OtherWay | None = None,
        further: Tensor | None = None,
    ) -> Batch:
        """The batch of some ticks.

        Args:
            ticks: [B] int64, on the CPU as the rest.
            keep_navigation: [B] bool; where it is False the navigation text is left out.
            way: how their ego histories differ from the vehicle's; None: not at all.
            further: [B] int64, by how many classes each sentence is another than the expert's; None: by none.
        """
        assert self._images is not None
        histories = self._histories[ticks]
        bins = self._sent(self._tokenizer.encode(histories if way is None else way.of(histories)))
        further = self._sent(torch.zeros_like(ticks) if further is None else further)
        ticks, keep_navigation = self._sent(ticks), self._sent(keep_navigation)
        its = {name: column[ticks] for name, column in self._columns.items()}
        moments = torch.arange(1 - FRAMES_PER_CAMERA, 1, device=self.device)
        images = self._images[its["frame"][:, None] + moments]  # [B, moments, cameras, H, W, 3]
        prompt = torch.where(keep_navigation, its["prompt"], 0)
        prompts, lengths = self._prompts[prompt], self._prompt_lengths[prompt]
        sentence = (its["reasoning"] + further) % len(SENTENCE_CLASSES)
        reasoning = self._reasonings[sentence]
        history = self.tables.layout.history
        prompts[:, history.start : history.stop] = bins + self._first_history
        after = torch.arange(prompts.shape[1], device=self.device) - lengths[:, None]
        own = reasoning.gather(1, after.clamp(0, reasoning.shape[1] - 1))
        return Batch(
            images=images.transpose(1, 2).flatten(0, 2).permute(0, 3, 1, 2).contiguous(),
            token_ids=torch.where((after >= 0) & (after < reasoning.shape[1]), own, prompts),
            prompt_lengths=lengths,
            reasoning=reasoning,
            reasoning_lengths=self._reasoning_lengths[sentence],
            own_words=further == 0,
            actions=its["actions"],
            paths=its["paths"],
            cars=its["cars"],
        )

    def draw(self, settings: TrainingSettings, generator: torch.Generator) -> Batch:
        """A batch of ticks drawn at random, some without navigation, with another ego history or another sentence.

        The generator is of the CPU, so that a seed gives the same batches on every device.
        """
        count = settings.batch
        points = torch.rand(count, dtype=torch.float64, generator=generator) * self._weights_until[-1]
        ticks = torch.searchsorted(self._weights_until, points, right=True)
        keep = torch.rand(count, generator=generator) >= settings.drop_navigation
        way = OtherWay.draw(count, settings.other_histories, generator)
        further = torch.randint(1, len(SENTENCE_CLASSES), (count,), generator=generator)
        other = torch.rand(count, generator=generator) < settings.other_sentences
        return self.batch(ticks, keep, way, torch.where(other, further, 0))

    def _add(self, drive: DriveExamples) -> None:
        images = torch.from_numpy(drive.images)
        frames = len(images)
        if self._images is None:
            self._ticks = len(drive)
            self._images = self._room(images)
            self._histories = torch.empty((self._capacity * self._ticks, *drive.histories.shape[1:]))
            self._weights = torch.zeros(self._capacity * self._ticks, dtype=torch.float64)
        if (frames, len(drive)) != (len(self._images) // self._capacity, self._ticks):
            raise ConfigurationError(
                f"a drive of {frames} frames; the first one has {len(self._images) // self._capacity}, as all have to"
            )
        place = self.drives % self._capacity
        start = place * frames
        self._images[start : start + frames] = self._sent(images)
        columns = {
            "frame": torch.arange(start + FIRST_TICK, start + FIRST_TICK + len(drive)),
            "prompt": torch.tensor([self.tables.prompt_row(str(text) or None) for text in drive.navigation]),
            "reasoning": torch.tensor([self.tables.reasoning_row(str(text)) for text in drive.sentences]),
            "actions": torch.from_numpy(drive.actions),
            "paths": torch.from_numpy(drive.paths),
            "cars": torch.from_numpy(drive.cars),
        }
        rows = slice(place * len(drive), (place + 1) * len(drive))
        self._histories[rows] = torch.from_numpy(drive.histories)
        self._weights[rows] = self._emphasis.weights(drive)
        for name, column in columns.items():
            if name not in self._columns:
                self._columns[name] = self._room(column)
            self._columns[name][rows] = self._sent(column)
        self.drives += 1

    def _room(self, like: Tensor) -> Tensor:
        """Memory for so many drives that have the rows of this one."""
        return torch.empty((self._capacity * len(like), *like.shape[1:]), dtype=like.dtype, device=self.device)

    def _sent(self, tensor: Tensor) -> Tensor:
        """The tensor on the device. A GPU fetches it when it gets there, so that the steps in its queue go on."""
        return tensor.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else tensor
