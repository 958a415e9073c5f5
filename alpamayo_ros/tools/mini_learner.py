"""The model in training as the one who drives, cheap enough for one core: the expert's words, few steps of its flow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from alpamayo_ros.core.types import STEP_NS, Array, SamplingOptions
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.sim.policies import Moment, Policy
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES

SAMPLING = SamplingOptions(num_samples=1, noise_temperature=0.5, reasoning="given", flow_steps=5)


def learner_policy(checkpoint: Path) -> Policy:
    """Paths of a checkpoint on the CPU, each tick with noise of its own, after the sentence that the expert says.

    Raises:
        ConfigurationError: a checkpoint that can't be used.
    """
    engine = TransformersEngine.load(str(checkpoint), device="cpu")

    def ask(moment: Moment) -> Array:
        observation = moment.observation
        sentence = SENTENCE_CLASSES[moment.journey.reason]
        options = replace(SAMPLING, seed=observation.t0_ns // STEP_NS, given_reasoning=sentence)
        return engine.predict(observation, options).xyz[0]

    return ask
