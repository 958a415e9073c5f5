"""The model in training as the one who drives, cheap enough for one core: greedy words, few steps of its flow."""

from __future__ import annotations

from pathlib import Path

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.sim.policies import Policy, engine_policy
from alpamayo_ros.tools.mini_scores import REASONING_TOKENS

# Its own words, since wrong ones are what it runs into cars with: where they take it is what the expert has to show.
SAMPLING = SamplingOptions(
    num_samples=1, noise_temperature=0.5, temperature=0.0, max_reasoning_tokens=REASONING_TOKENS, flow_steps=5
)


def learner_policy(checkpoint: Path) -> Policy:
    """Paths of a checkpoint on the CPU, each tick with noise of its own.

    Raises:
        ConfigurationError: a checkpoint that can't be used.
    """
    return engine_policy(TransformersEngine.load(str(checkpoint), device="cpu"), SAMPLING)
