"""Whether the small checkpoint takes the way out of a junction that its navigation text names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpamayo_ros.core.metrics import path_length
from alpamayo_ros.core.types import Array, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.sim.path import SPACING
from alpamayo_ros.sim.recorded_drive import RecordedDrive
from alpamayo_ros.sim.route_text import STEP
from alpamayo_ros.sim.world import Turn, World
from alpamayo_ros.tools.mini_scores import REASONING_TOKENS, predict_all
from alpamayo_ros.training.observations import FIRST_TICK, observations_of

ASKED_AT = 25.0  # m before a junction's middle
GUIDANCE_WEIGHT = 1.5
LEAST_INSIDE = 2.0  # m into a junction, from where a way out can be told


@dataclass(frozen=True, eq=False)
class BranchCase:
    """An approach to a junction, and a text that names one of its ways out."""

    observation: Observation  # with that text
    ways: dict[Turn, Array]  # [N, 2] m in ego, the middle of the lane by each way out, from where the junction begins
    asked: Turn


def branch_cases(world: World, drive: RecordedDrive) -> list[BranchCase]:
    """Every way out of every junction that the drive comes through without a stop."""
    cases = []
    asked: set[float] = set()
    observations = observations_of(drive)
    for tick, observation in enumerate(observations):
        index = FIRST_TICK + tick
        along = SPACING * int(np.linalg.norm(world.route.xy - drive.positions[index, :2], axis=1).argmin())
        junction = world.next_junction(along)
        if junction is None or junction.begin in asked:
            continue
        left = (junction.begin + junction.end) / 2 - along
        if left > ASKED_AT or along > junction.begin or path_length(drive.futures[index]) < left:
            continue
        asked.add(junction.begin)
        to_ego = drive.rotations[index, :2, :2].T
        place = drive.positions[index, :2]
        ways = {turn: (junction.way(turn).xy - place) @ to_ego.T for turn in junction.exits}
        cases += [BranchCase(replace(observation, navigation=text_for(turn, left)), ways, turn) for turn in ways]
    return cases


def branch_scores(engine: Engine, cases: Sequence[BranchCase]) -> dict[str, Any]:
    """How often the first sample leaves by the way that the text names, with and without guidance; None of no cases."""
    plain = SamplingOptions(num_samples=1, max_reasoning_tokens=REASONING_TOKENS)
    observations = [case.observation for case in cases]
    scores: dict[str, Any] = {"cases": len(cases)}
    for name, options in {"plain": plain, "guided": replace(plain, guidance_weight=GUIDANCE_WEIGHT)}.items():
        predictions = predict_all(engine, observations, options, f"junctions, {name}")
        right = [taken(prediction, case) is case.asked for prediction, case in zip(predictions, cases, strict=True)]
        scores[name] = float(np.mean(right)) if right else None
    return scores


def text_for(turn: Turn, left: float) -> str:
    """What the synthetic world's navigation says `left` m before a junction's middle."""
    if turn is Turn.STRAIGHT:
        return "Continue straight"
    return f"Turn {turn.name.lower()} in {STEP * math.ceil(left / STEP)}m"


def taken(prediction: Prediction, case: BranchCase) -> Turn | None:
    """The way out that the first sample's end is nearest to; None when it ends less than 2 m into the junction.

    Its heading wouldn't do: a vehicle that has stopped at a line ends its 6.4 s in the middle of its turn.
    """
    end = prediction.xyz[0, -1, :2]
    distances = {turn: np.linalg.norm(way - end, axis=1) for turn, way in case.ways.items()}
    nearest = min(distances, key=lambda turn: float(distances[turn].min()))
    return nearest if SPACING * int(distances[nearest].argmin()) >= LEAST_INSIDE else None
