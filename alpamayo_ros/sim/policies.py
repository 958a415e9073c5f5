"""What can be asked for a path in a closed loop: the expert, what needs no model, and engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from alpamayo_ros.core.metrics import yaw
from alpamayo_ros.core.types import HORIZON, STEP_NS, Array, Observation, SamplingOptions
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.evaluation.baselines import constant_velocity, stop
from alpamayo_ros.sim.journey import Journey

DT = STEP_NS * 1e-9  # s


@dataclass(frozen=True, eq=False)
class Moment:
    """A tick of a closed loop."""

    observation: Observation  # what the model is given; without frames where nothing is rendered
    journey: Journey  # the truth


Policy = Callable[[Moment], Array]  # to [64, 3] m in ego, the first at t0 + 0.1 s


def expert(moment: Moment) -> Array:
    """The expert driver's plan."""
    vehicle, plan = moment.journey.vehicle, moment.journey.plan()
    offset = plan[:, :2] - [vehicle.x, vehicle.y]
    c, s = np.cos(vehicle.yaw), np.sin(vehicle.yaw)
    return np.column_stack(
        [c * offset[:, 0] + s * offset[:, 1], c * offset[:, 1] - s * offset[:, 0], np.zeros(HORIZON)]
    )


def constant_curvature(moment: Moment) -> Array:
    """On the arc of the last 0.1 s of the ego history, with its speed."""
    history = moment.observation.history_xyz
    length = float(np.linalg.norm(history[-1, :2] - history[-2, :2]))
    headings = yaw(moment.observation.history_rotation[-2:])
    turn = float(np.angle(np.exp(1j * (headings[1] - headings[0]))))
    middle = turn * (np.arange(HORIZON) + 0.5)
    points = np.zeros((HORIZON, 3))
    points[:, :2] = np.cumsum(length * np.column_stack([np.cos(middle), np.sin(middle)]), axis=0)
    return points


BASELINES: Mapping[str, Policy] = {
    "stop": lambda moment: stop(moment.observation).xyz,
    "straight ahead": lambda moment: constant_velocity(moment.observation).xyz,
    "constant curvature": constant_curvature,
}


def engine_policy(engine: Engine, options: SamplingOptions) -> Policy:
    """The first sample of an engine, each tick with noise of its own."""

    def ask(moment: Moment) -> Array:
        seed = options.seed + moment.observation.t0_ns // STEP_NS
        return engine.predict(moment.observation, replace(options, seed=seed)).xyz[0]

    return ask
