"""What the small checkpoint reaches on drives that it was not trained on: open loop, by the engine that ships."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpamayo_ros.core.metrics import ade, distances, min_ade
from alpamayo_ros.core.types import HORIZON, Array, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.evaluation.baselines import BASELINES
from alpamayo_ros.progress import progress
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.sim.sentences import SENTENCE_CLASSES
from alpamayo_ros.training.observations import FIRST_TICK, observations_of

SAMPLES = 6
AT_ONCE = 32  # ticks that are given to the engine together
REASONING_TOKENS = 24


@dataclass(frozen=True, eq=False)
class HeldOutTick:
    """A moment of a drive, what the expert driver meant to do, what it said, and what came of it.

    The plan knows what can be seen then: lights stay as they are, and no car speeds up. That is what is learned. The
    path that was driven depends on what nobody could see: when a light changed, and what the car ahead did.
    """

    observation: Observation
    plan: Array  # [64, 3] m in ego
    driven: Array  # [64, 3] m in ego
    sentence: str


def held_out_ticks(drives: Sequence[RecordedDrive], every: int) -> list[HeldOutTick]:
    """Every so many ticks of drives, as far as the drives show what came of them: up to 6.4 s before their ends."""
    return [
        HeldOutTick(observation, drive.futures[index], driven, drive.sentences[index])
        for drive in drives
        for index, (observation, driven) in enumerate(
            zip(observations_of(drive), drive.driven[FIRST_TICK:], strict=False), FIRST_TICK
        )
        if (index - FIRST_TICK) % every == 0
    ]


def predict_all(
    engine: Engine, observations: Sequence[Observation], options: SamplingOptions, what: str
) -> list[Prediction]:
    """Predictions of all observations; each has its own seed."""
    predictions: list[Prediction] = []
    with progress(total=len(observations), unit=" ticks", desc=what) as bar:
        for start in range(0, len(observations), AT_ONCE):
            some = observations[start : start + AT_ONCE]
            seeds = range(start, start + len(some))
            predictions += engine.predict_batch(some, [replace(options, seed=seed) for seed in seeds])
            bar.update(len(some))
    return predictions


def open_loop_scores(engine: Engine, ticks: Sequence[HeldOutTick]) -> dict[str, Any]:
    """minADE over 1 and 6 samples at 6.4 s in m beside the baselines' ADE, and how often the sentence is the expert's.

    minADE_1 is the mean of the first sample's ADE. The distances are those from the expert's plans; those from the path
    that was driven are told beside them, with what the plans themselves are off it.
    """
    options = SamplingOptions(num_samples=SAMPLES, max_reasoning_tokens=REASONING_TOKENS)
    predictions = predict_all(engine, [tick.observation for tick in ticks], options, "open loop")
    plans, driven = [tick.plan for tick in ticks], [tick.driven for tick in ticks]
    off = _distances(predictions, plans)
    plan_off = [ade(distances(plan, path), HORIZON) for plan, path in zip(plans, driven, strict=True)]
    said = [prediction.reasoning[0] for prediction in predictions]
    return {
        "ticks": len(ticks),
        **_errors(off, ticks, plans),
        "driven": {**_errors(_distances(predictions, driven), ticks, driven), "plan_ade_m": float(np.mean(plan_off))},
        "sentence_accuracy": float(np.mean([text == tick.sentence for text, tick in zip(said, ticks, strict=True)])),
        "by_sentence": _by_sentence(ticks, said, ade(off[:, 0], HORIZON)),
    }


def _distances(predictions: Sequence[Prediction], paths: Sequence[Array]) -> Array:
    """[ticks, samples, 64] m."""
    return np.stack([distances(each.xyz, path) for each, path in zip(predictions, paths, strict=True)])


def _errors(off: Array, ticks: Sequence[HeldOutTick], paths: Sequence[Array]) -> dict[str, Any]:
    """Of the samples that are so far off these paths, and of the baselines."""
    baselines = {
        name: float(
            np.mean(
                [
                    ade(distances(baseline(tick.observation).xyz, path), HORIZON)
                    for tick, path in zip(ticks, paths, strict=True)
                ]
            )
        )
        for name, baseline in BASELINES.items()
    }
    return {
        "min_ade_1_m": float(ade(off[:, 0], HORIZON).mean()),
        "min_ade_6_m": float(min_ade(off, HORIZON).mean()),
        "baselines_ade_m": baselines,
        "best_baseline_ade_m": min(baselines.values()),
    }


def _by_sentence(ticks: Sequence[HeldOutTick], said: Sequence[str], errors: Array) -> Mapping[str, Any]:
    """Per sentence of the expert: how many ticks, how often the model says the same, and the first sample's ADE."""
    table = {}
    for sentence in SENTENCE_CLASSES:
        places = [place for place, tick in enumerate(ticks) if tick.sentence == sentence]
        if places:
            right = float(np.mean([said[place] == sentence for place in places]))
            table[sentence] = {"ticks": len(places), "right": right, "ade_m": float(errors[places].mean())}
    return table
