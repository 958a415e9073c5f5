"""From normalised actions and reasoning to a Prediction, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import Observation, Prediction, SamplingOptions, Timings
from alpamayo_ros.engine.reasoning import Text
from alpamayo_ros.model.action_space import UnicycleActionSpace
from alpamayo_ros.model.vocabulary import Vocabulary


@dataclass(frozen=True, eq=False)
class Assembly:
    """What of a prediction doesn't hang on its actions: it is made while a device computes those."""

    options: SamplingOptions
    texts: Sequence[Text]  # one for all samples, or one each
    reasoning: tuple[str, ...]  # of each text
    action_space: UnicycleActionSpace
    history_xyz: Tensor  # [K, H, 3] float64
    history_rotation: Tensor  # [K, H, 3, 3]
    v0: Tensor  # [K] m/s at t0

    @classmethod
    def begin(
        cls,
        observation: Observation,
        options: SamplingOptions,
        texts: Sequence[Text],
        action_space: UnicycleActionSpace,
        vocabulary: Vocabulary,
    ) -> Assembly:
        """Decode the texts and estimate the speed.

        Args:
            observation, options: The tick's.
            texts: See the class.
            action_space, vocabulary: The model's.
        """
        samples, before = options.num_samples, [vocabulary.reasoning_start]
        xyz = torch.from_numpy(np.array(observation.history_xyz))
        rotation = torch.from_numpy(np.array(observation.history_rotation))
        return cls(
            options,
            texts,
            tuple(vocabulary.text_between(before + text.token_ids, "cot") for text in texts),
            action_space,
            xyz.expand(samples, -1, -1),
            rotation.expand(samples, -1, -1, -1),
            action_space.estimate_v0(xyz, rotation).expand(samples),
        )

    def finish(self, actions: Tensor) -> Prediction:
        """Integrate normalised actions [K, N, 2] on the host."""
        trajectory = self.action_space.actions_to_trajectory(
            actions.double(), self.history_xyz, self.history_rotation, self.v0
        )
        copies = self.options.num_samples // len(self.texts)
        return Prediction(
            xyz=trajectory.xyz.numpy(),
            rotation=trajectory.rotation.numpy(),
            actions=trajectory.actions.numpy(),
            speed=trajectory.speed.numpy(),
            reasoning=self.reasoning * copies,
            reasoning_token_ids=tuple(tuple(text.token_ids) for text in self.texts) * copies,
            finish_reasons=tuple(text.finish_reason for text in self.texts) * copies,
            seed=self.options.seed,
            timings=Timings(),
        )
