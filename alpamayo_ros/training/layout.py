"""Where things stand in the token sequences of training: the same columns for every tick up to the ego history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.core.types import FRAMES_PER_CAMERA, ConfigurationError
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import target_size, token_count
from alpamayo_ros.model.prompt import Prompt, build_driving_prompt
from alpamayo_ros.model.rope_positions import rope_positions
from alpamayo_ros.model.vocabulary import Vocabulary
from alpamayo_ros.training.observations import CAMERAS

LONGEST_REASONING = 16  # tokens, so that batches keep their shape whatever sentences come


@dataclass(frozen=True, eq=False)
class Layout:
    """The columns that all prompts share, and the rotary positions of all columns."""

    length: int  # S, of the longest sequence
    image_size: tuple[int, int]  # pixels, after the resize
    grid: tuple[int, int]  # rows and columns of patches of an image
    image_columns: Tensor  # [tokens of all images] int64
    history: range  # columns of the ego history
    positions: Tensor  # [3, S] int64
    rope_delta: int  # rotary position minus column of what comes after the images


class TokenTables:
    """The prompts and reasonings that occur, each tokenised once; they grow as new texts come."""

    def __init__(self, config: ModelConfig, vocabulary: Vocabulary, image_size: tuple[int, int], longest: int) -> None:
        """Get ready.

        Args:
            config, vocabulary: The checkpoint's.
            image_size: Height and width of the cameras' pictures in pixels.
            longest: S, the tokens of a sequence; a text that doesn't fit is an error.
        """
        self._config, self._vocabulary = config, vocabulary
        self._count = token_count(*image_size, config.images)
        self.prompts: list[Prompt] = []
        self.reasonings: list[tuple[int, ...]] = []
        self._prompt_rows: dict[str | None, int] = {}
        self._reasoning_rows: dict[str, int] = {}
        self.longest = longest
        self.prompt_row(None)
        self.layout = self._layout(image_size)

    def prompt_row(self, navigation: str | None) -> int:
        """The place of a prompt in `prompts`; the one without navigation is 0."""
        if navigation not in self._prompt_rows:
            cameras = [camera for camera in CAMERAS for _ in range(FRAMES_PER_CAMERA)]
            captions = cameras if self._config.has_captions else None
            counts = [self._count] * len(cameras)
            prompt = build_driving_prompt(self._vocabulary, counts, self._config.history_tokens, captions, navigation)
            self._prompt_rows[navigation] = len(self.prompts)
            self.prompts.append(prompt)
        return self._prompt_rows[navigation]

    def reasoning_row(self, sentence: str) -> int:
        """The place of a reasoning in `reasonings`, with the two tokens that close it."""
        if sentence not in self._reasoning_rows:
            closing = (self._vocabulary.reasoning_end, self._vocabulary.future_start)
            self._reasoning_rows[sentence] = len(self.reasonings)
            self.reasonings.append((*self._vocabulary.encode(sentence), *closing))
        return self._reasoning_rows[sentence]

    def padded_prompts(self) -> tuple[Tensor, Tensor]:
        """Token ids [prompts, S] and lengths [prompts], int64."""
        return _padded([prompt.token_ids for prompt in self.prompts], self.longest, self._vocabulary.pad)

    def padded_reasonings(self) -> tuple[Tensor, Tensor]:
        """Token ids [reasonings, LONGEST_REASONING] and lengths [reasonings], int64."""
        return _padded(self.reasonings, LONGEST_REASONING, self._vocabulary.pad)

    def check_lengths(self) -> None:
        """Make sure that every prompt fits with the longest reasoning: what is read after it counts, and padding too.

        Raises:
            ConfigurationError: it doesn't.
        """
        needed = max(map(len, self.prompts)) + LONGEST_REASONING
        if needed > self.longest:
            raise ConfigurationError(
                f"a prompt with a reasoning of {LONGEST_REASONING} tokens takes {needed}; {self.longest} is the limit"
            )

    def _layout(self, image_size: tuple[int, int]) -> Layout:
        prompt, images = self.prompts[0], self._config.images
        height, width = target_size(*image_size, images)
        grid = (height // images.patch_size, width // images.patch_size)
        tokens = (grid[0] // images.merge_size, grid[1] // images.merge_size)
        rope = rope_positions(prompt, [tokens] * len(prompt.images))
        after = torch.arange(len(prompt), self.longest) + rope.delta
        return Layout(
            length=self.longest,
            image_size=(height, width),
            grid=grid,
            image_columns=torch.tensor([column for image in prompt.images for column in image]),
            history=prompt.history,
            positions=torch.cat((rope.prompt, after.expand(3, -1)), 1),
            rope_delta=rope.delta,
        )


def _padded(rows: Sequence[Sequence[int]], length: int, pad: int) -> tuple[Tensor, Tensor]:
    ids = torch.full((len(rows), length), pad)
    for index, row in enumerate(rows):
        if len(row) > length:
            raise ConfigurationError(f"a text takes {len(row)} tokens; {length} is the limit")
        ids[index, : len(row)] = torch.tensor(row)
    return ids, torch.tensor([len(row) for row in rows])
