"""The small checkpoint drives through a real node: right wiring gives the truth's paths, and every fault costs.

A tick's true observation is made of the world itself: right pictures, right poses, right time. What the checkpoint
answers to it is compared with what the node publishes. Right wiring gives the same path. With a fault in the wiring
the published paths are further from the expert's plans than those of the truth, by the margins that `FAULTS` records.
After a change of the checkpoint `pytest -s` prints what they have become.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import pytest
from live import Live

from alpamayo_ros.core.types import Array, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.evaluation.drive_bag import ODOMETRY_TOPIC, image_topic
from alpamayo_ros.sim.closed_loop import LEAD_IN_S, Observer
from alpamayo_ros.sim.follower import FollowedPath
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.renderer import Image, Renderer
from alpamayo_ros.sim.rig import CAMERAS, rig
from alpamayo_ros.sim.scoring import ClosedLoopScore, score
from alpamayo_ros.sim.vehicle import VehicleState
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED, World
from alpamayo_ros.tools.drive_node import Answer, DriveNode
from alpamayo_ros.tools.live_loop import LiveLoop, LiveOptions

START_NS = 1_000_000_000_000_000_000
STEP_NS = 100_000_000
PARAMETERS = {
    "use_sim_time": True,
    "anchor": "front_wide",
    "future_tolerance": 5.0,
    "odometry.topic": ODOMETRY_TOPIC,
    "sampling.num_samples": 1,
    "sampling.temperature": 0.0,
    "sampling.noise_temperature": 0.5,
    "sampling.max_reasoning_tokens": 24,
    **{f"cameras.{name}.topic": image_topic(name) for name in CAMERAS},
    **{f"cameras.{name}.reliability": "reliable" for name in CAMERAS},
    **{f"cameras.{name}.depth": 100 for name in CAMERAS},
}
SAME = 0.01  # m
HORIZON = 20  # points: 2 s
FROM_S, UNTIL_S = 5.4, 10.2  # of the journey with a fault

Send = Callable[[str, Any, int], None]
Fault = Callable[[Send, str, Any, int], None]


def right(send: Send, topic: str, message: Any, receive_ns: int) -> None:
    send(topic, message, receive_ns)


def mirrored(send: Send, topic: str, message: Any, receive_ns: int) -> None:
    """Left is right in the odometry."""
    if topic == ODOMETRY_TOPIC:
        pose, twist = message.pose.pose, message.twist.twist
        pose.position.y, pose.orientation.z = -pose.position.y, -pose.orientation.z
        twist.angular.z = -twist.angular.z
    send(topic, message, receive_ns)


class Late:
    """Every picture shows what was 0.1 s before its stamp."""

    def __init__(self) -> None:
        self._last = dict[str, deque[Any]]()

    def __call__(self, send: Send, topic: str, message: Any, receive_ns: int) -> None:
        if topic.endswith("/compressed"):
            kept = self._last.setdefault(topic, deque(maxlen=2))
            kept.append(message.data)
            message.data = kept[0]
        send(topic, message, receive_ns)


SWAPPED = {
    "cameras.cross_left.topic": image_topic("cross_right"),
    "cameras.cross_right.topic": image_topic("cross_left"),
}
TURNED = {"odometry.child_to_base": [0.0, 0.0, 0.0, 0.0, 0.0, 0.3]}


@dataclass(frozen=True)
class Wiring:
    """What is wrong between the world and the node, and what that has to cost."""

    name: str
    fault: Callable[[], Fault]
    parameters: Mapping[str, object]
    at_least: float  # times the error of right wiring
    measured: float  # the same, when it was measured last; right wiring errs by 0.013 m


FAULTS = (
    Wiring("mirrored y", lambda: mirrored, {}, at_least=1000, measured=3411),
    Wiring("frames 0.1 s late", Late, {}, at_least=1.6, measured=2.53),
    Wiring("odometry in a wrong frame", lambda: right, TURNED, at_least=120, measured=266),
    Wiring("left and right camera swapped", lambda: right, SWAPPED, at_least=2.0, measured=4.08),
)


class HeardEngine(TransformersEngine):
    """The small checkpoint, that remembers how it was asked."""

    @cached_property
    def asked(self) -> dict[int, SamplingOptions]:
        """By t0, ns."""
        return {}

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        self.asked[observation.t0_ns] = options
        return super().predict(observation, options)


class Eyes(Renderer):
    """Remembers the true observation of every moment that it draws, by its stamp."""

    def __init__(self, world: World) -> None:
        cameras = rig(160, 96)
        super().__init__(world, cameras)
        self.truth = dict[int, Observation | None]()
        self._observer = Observer(Renderer(world, cameras))

    def draw(self, journey: Journey, number: int = 0) -> dict[str, Image]:
        self.truth[stamp_ns(journey)] = self._observer.look(journey)
        return super().draw(journey, number)


class FaultyNode(DriveNode):
    """Sends what a fault makes of the messages."""

    def __init__(self, cameras: Iterable[str], fault: Fault) -> None:
        super().__init__(cameras)
        self._fault = fault

    def write(self, topic: str, message: Any, receive_ns: int) -> None:
        self._fault(super().write, topic, message, receive_ns)


def out_of_a_bend() -> Journey:
    """At 11 m/s in a right bend, and out of it: its end can be seen in the pictures alone."""
    journey = Journey(World.random(FIRST_HELD_OUT_SEED, 220.0))
    while journey.time_s < FROM_S - STEP_S / 2:
        journey.drive()
    return journey


def stamp_ns(journey: Journey) -> int:
    return START_NS + round(journey.time_s / STEP_S) * round(STEP_S * 1e9)


@dataclass(frozen=True, eq=False)
class Tick:
    """A tick that was answered; paths [64, 2] m in the world."""

    t0_ns: int
    vehicle: VehicleState
    published: Array
    expert: Array  # the expert's plan


@dataclass(frozen=True, eq=False)
class Driven:
    """Paths [N, 64, 2] m in the world, of a drive of N ticks."""

    score: ClosedLoopScore
    published: Array
    expert: Array  # the expert's plans
    compute_truth: Callable[[], Array]

    @cached_property
    def of_truth(self) -> Array:
        """What the same checkpoint makes of the truth."""
        return self.compute_truth()


Drive = Callable[..., Driven]


@pytest.fixture
def drive(ros_domain: int, live: Live) -> Drive:
    """Drives a journey on through a node with the small checkpoint, with a fault and parameters."""

    def drive(
        journey: Journey,
        until_s: float = float("inf"),
        closed_loop: bool = True,
        fault: Fault = right,
        parameters: Mapping[str, object] | None = None,
    ) -> Driven:
        engine = HeardEngine.load("mini", device="cpu")
        live.node(lambda _: engine, parameters={**PARAMETERS, **(parameters or {})})
        eyes = Eyes(journey.world)
        ticks = list[Tick]()

        def watch(now: Journey, answer: Answer) -> None:
            if answer.t0_ns == stamp_ns(now):  # and not of a tick before the first that was waited for
                ticks.append(Tick(answer.t0_ns, now.vehicle, answer.xy, now.plan()[:, :2]))

        options = LiveOptions(closed_loop=closed_loop, lock_step=True, clock=True, form="png")
        with FaultyNode(eyes.cameras, fault) as node:
            node.wait_until_heard(60.0)
            driven = LiveLoop(journey, eyes, node, options, START_NS, watch).run(until_s, threading.Event())
        assert driven.unanswered == 0
        assert len(ticks) == len(driven.trace.time_s) - 1, driven.skips  # every one gave a path
        return Driven(
            score=score(journey.world, driven.trace),
            published=np.array([tick.published for tick in ticks]),
            expert=np.array([tick.expert for tick in ticks]),
            compute_truth=lambda: paths_of_truth(ticks, eyes.truth, engine.asked),
        )

    return drive


@cache
def engine_of_truth() -> TransformersEngine:
    return TransformersEngine.load("mini", device="cpu")


_answers = dict[bytes, Array]()  # all drives towards the bend see the same world: no question is answered twice


def path_of_truth(observation: Observation, options: SamplingOptions) -> Array:
    """What the checkpoint makes of an observation."""
    question = hashlib.sha256(f"{observation.t0_ns} {observation.navigation!r} {options!r}".encode())
    for values in (observation.history_xyz, observation.history_rotation):
        question.update(np.ascontiguousarray(values))
    for camera, frames in observation.frames.items():
        for frame in frames:
            question.update(f"{camera} {frame.stamp_ns}".encode())
            question.update(np.ascontiguousarray(frame.data))
    key = question.digest()
    if key not in _answers:
        _answers[key] = engine_of_truth().predict(observation, options).xyz[0]
    return _answers[key]


def paths_of_truth(
    ticks: Sequence[Tick], truth: Mapping[int, Observation | None], asked: Mapping[int, SamplingOptions]
) -> Array:
    """What the checkpoint makes of the true observations, asked as the node asked it."""
    paths = []
    for tick in ticks:
        observation = truth[tick.t0_ns]
        assert observation is not None
        path = path_of_truth(observation, asked[tick.t0_ns])
        paths.append(FollowedPath.from_vehicle(0.0, tick.vehicle, path).xy[1:])
    return np.array(paths)


def error(paths: Array, plans: Array) -> float:
    """m, mean distance of paths from the expert's plans over HORIZON."""
    return float(np.linalg.norm(paths - plans, axis=-1)[:, :HORIZON].mean())


def test_a_route_is_driven_in_its_lane_by_the_paths_that_the_truth_gives(drive: Drive) -> None:
    driven = drive(Journey(World.random(FIRST_HELD_OUT_SEED + 1, 60.0)))
    assert driven.score.passed
    assert driven.score.max_offset_m < 0.5
    assert len(driven.published) > driven.score.seconds * 10
    assert np.linalg.norm(driven.published - driven.of_truth, axis=-1).mean(axis=1).max() < SAME


def test_mirrored_odometry_leaves_the_lane(drive: Drive) -> None:
    """On the route of above; right wiring keeps within 0.3 m of the lane's middle there, and this leads 2 m away."""
    driven = drive(Journey(World.random(FIRST_HELD_OUT_SEED + 1, 60.0)), LEAD_IN_S + 4.4, fault=mirrored)
    assert driven.score.lane_departures
    assert driven.score.max_offset_m > 1.0


def test_right_wiring_errs_as_the_truth_does(drive: Drive) -> None:
    driven = drive(out_of_a_bend(), UNTIL_S, closed_loop=False)
    assert error(driven.published, driven.expert) == pytest.approx(error(driven.of_truth, driven.expert), abs=SAME)


@pytest.mark.parametrize("wrong", FAULTS, ids=lambda wrong: wrong.name)
def test_wrong_wiring_leads_away_from_the_experts_plan(drive: Drive, wrong: Wiring) -> None:
    driven = drive(out_of_a_bend(), UNTIL_S, closed_loop=False, fault=wrong.fault(), parameters=wrong.parameters)
    its, right = error(driven.published, driven.expert), error(driven.of_truth, driven.expert)
    print(f"{wrong.name}: {its:.3f} m, {its / right:.2f} times the {right:.3f} m of right wiring ({wrong.measured})")
    assert its > wrong.at_least * right
