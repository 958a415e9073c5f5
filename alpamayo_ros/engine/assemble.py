"""From normalised actions and reasoning to a Prediction, the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import Observation, Prediction, SamplingOptions, Timings
from alpamayo_ros.engine.reasoning import Text
from alpamayo_ros.model.action_space import UnicycleActionSpace
from alpamayo_ros.model.vocabulary import Vocabulary


def assemble_prediction(
    observation: Observation,
    options: SamplingOptions,
    texts: Sequence[Text],
    actions: Tensor,
    action_space: UnicycleActionSpace,
    vocabulary: Vocabulary,
) -> Prediction:
    """Integrate the actions and decode the texts.

    Args:
        observation, options: The tick's.
        texts: One for all samples, or one each.
        actions: [K, N, 2] normalised, on any device.
        action_space, vocabulary: The model's.
    """
    samples = options.num_samples
    trajectory = action_space.actions_to_trajectory(
        actions.cpu().double(),
        torch.from_numpy(np.array(observation.history_xyz)).expand(samples, -1, -1),
        torch.from_numpy(np.array(observation.history_rotation)).expand(samples, -1, -1, -1),
    )
    before = [vocabulary.reasoning_start]
    reasoning = [vocabulary.text_between(before + text.token_ids, "cot") for text in texts]
    copies = samples // len(texts)
    return Prediction(
        xyz=trajectory.xyz.numpy(),
        rotation=trajectory.rotation.numpy(),
        actions=trajectory.actions.numpy(),
        speed=trajectory.speed.numpy(),
        reasoning=tuple(reasoning) * copies,
        reasoning_token_ids=tuple(tuple(text.token_ids) for text in texts) * copies,
        finish_reasons=tuple(text.finish_reason for text in texts) * copies,
        seed=options.seed,
        timings=Timings(),
    )
