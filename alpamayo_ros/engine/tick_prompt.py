"""From an observation to the model's prompt, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from alpamayo_ros.core.types import BadImageError, Observation, SamplingOptions
from alpamayo_ros.engine.reasoning import Text
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.history_tokens import HistoryTokenizer
from alpamayo_ros.model.prompt import Prompt, build_driving_prompt, build_question_prompt
from alpamayo_ros.model.vocabulary import Vocabulary

KEPT = 16  # prompts, by rig and route


class TickPrompts:
    """Writes the prompts of one model."""

    def __init__(self, config: ModelConfig, vocabulary: Vocabulary) -> None:
        self._config = config
        self._vocabulary = vocabulary
        self._history = HistoryTokenizer(config.history)
        # from tick to tick nothing but the history changes
        self._without_history = lru_cache(maxsize=KEPT)(
            lambda counts, captions, navigation: build_driving_prompt(
                vocabulary, counts, config.history_tokens, captions, navigation
            )
        )

    def driving(self, observation: Observation, token_counts: Sequence[int]) -> Prompt:
        """The prompt for a trajectory, the ego history in place; `token_counts` are those of the images, in order."""
        bins = self._history.encode(torch.from_numpy(np.array(observation.history_xyz, dtype=np.float32)))
        prompt = self._without_history(tuple(token_counts), self._captions(observation), observation.navigation)
        return prompt.with_history((bins + self._vocabulary.history_ids.start).tolist())

    def question(self, observation: Observation, question: str, token_counts: Sequence[int]) -> Prompt:
        """The prompt for an answer in words."""
        return build_question_prompt(self._vocabulary, token_counts, question, self._captions(observation))

    def fixed_reasoning(self, options: SamplingOptions) -> Text | None:
        """What stands in the reasoning's place when nothing is written, closed."""
        closing = [self._vocabulary.reasoning_end, self._vocabulary.future_start]
        if options.reasoning == "off":
            return Text(0, closing, "off")
        if options.reasoning == "given":
            return Text(0, self._vocabulary.encode(options.given_reasoning) + closing, "forced")
        return None

    def _captions(self, observation: Observation) -> tuple[int, ...] | None:
        if not self._config.has_captions:
            return None
        return tuple(camera for camera, frames in observation.frames.items() for _ in frames)


def check_sizes(observation: Observation, sizes: Sequence[tuple[int, int]]) -> None:
    """Make sure that a camera's pictures have one size.

    Args:
        observation: The frames.
        sizes: Height and width of each frame's picture, in their order.

    Raises:
        BadImageError: names the camera and its sizes.
    """
    remaining = iter(sizes)
    for camera, frames in observation.frames.items():
        of_camera = [next(remaining) for _ in frames]
        if len(set(of_camera)) > 1:
            listed = ", ".join(f"{width}x{height}" for height, width in of_camera)
            raise BadImageError(f"the images of camera {camera} have the sizes {listed}; they have to be equal")
