"""The closed loop through a real node: the expert as its engine drives a route, and a wrong sign or frame doesn't."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from live import Live

from alpamayo_ros.core.rotation import matrix_from_quaternion
from alpamayo_ros.core.types import Array, Observation, Prediction, SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.drive_bag import ODOMETRY_TOPIC, image_topic
from alpamayo_ros.sim.driver import Lane, Situation, plan
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.path import SPACING
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import CAMERAS, rig
from alpamayo_ros.sim.scoring import ClosedLoopScore, Trace, score
from alpamayo_ros.sim.vehicle import VehicleState, steering_for
from alpamayo_ros.sim.world import Control, World
from alpamayo_ros.tools.drive_node import Answer, DriveNode
from alpamayo_ros.tools.live_loop import LiveLoop, LiveOptions
from alpamayo_ros.tools.synthetic_drive import build_parser, send

START_NS = 1_000_000_000_000_000_000
PARAMETERS = {
    "use_sim_time": True,
    "anchor": "front_wide",
    "future_tolerance": 5.0,
    "odometry.topic": ODOMETRY_TOPIC,
    "sampling.num_samples": 1,
    **{f"cameras.{name}.topic": image_topic(name) for name in CAMERAS},
    **{f"cameras.{name}.reliability": "reliable" for name in CAMERAS},
    **{f"cameras.{name}.depth": 100 for name in CAMERAS},
}


def quiet_world(seed: int, length: float) -> World:
    """Without cars, lights and signs: the lane is all that there is to mind."""
    world = World.random(seed, length)
    junctions = tuple(replace(junction, control=Control.NONE) for junction in world.junctions)
    return replace(world, cars=(), junctions=junctions)


class LaneEngine(NullEngine):
    """Plans by the observation's pose and the map alone: a wrong pose, time or frame gives a wrong path."""

    def __init__(self, world: World, change: Callable[[Array], Array] = lambda xyz: xyz) -> None:
        super().__init__()
        self._world, self._lane, self._change = world, Lane(world.route), change

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        pose = observation.pose
        heading = matrix_from_quaternion(pose.orientation)[:2, 0]
        yaw = float(np.arctan2(heading[1], heading[0]))
        speed = float(np.linalg.norm(observation.history_xyz[-1] - observation.history_xyz[-2])) * 10
        assert pose.angular_velocity is not None
        steering = steering_for(float(pose.angular_velocity[2]) / max(speed, 1.0))
        x, y = map(float, pose.position[:2])
        near = SPACING * int(np.argmin(np.linalg.norm(self._world.route.xy - [x, y], axis=1)))
        poses = plan(self._lane, VehicleState(x, y, yaw, speed, 0.0, steering), near, Situation())
        offset = poses[:, :2] - [x, y]
        c, s = np.cos(yaw), np.sin(yaw)
        xyz = np.column_stack(
            [c * offset[:, 0] + s * offset[:, 1], c * offset[:, 1] - s * offset[:, 0], 0 * offset[:, 0]]
        )
        return replace(super().predict(observation, options), xyz=self._change(xyz)[None])


class Listener(DriveNode):
    """Remembers what was answered."""

    def __init__(self, cameras: Iterable[str]) -> None:
        super().__init__(cameras)
        self.heard: list[Answer] = []

    def take_answers(self) -> list[Answer]:
        answers = super().take_answers()
        self.heard += answers
        return answers


@dataclass(frozen=True)
class Driven:
    score: ClosedLoopScore
    start_errors: Array  # [N] m, from where paths begin to where the vehicle was at their t0


def start_errors(answers: list[Answer], trace: Trace) -> Array:
    ticks = np.round(trace.time_s[:-1] * 10).astype(int).tolist()  # the last one is the drive's end
    places = dict(zip(ticks, trace.poses[:-1, :2], strict=True))
    errors = []
    for answer in answers:
        tick = round((answer.t0_ns - START_NS) / 1e8)
        begin = 2 * answer.xy[0] - answer.xy[1]  # one step before the first point
        if tick in places:  # one may come just before the lead-in's end
            errors.append(float(np.linalg.norm(begin - places[tick])))
    return np.array(errors)


@pytest.fixture
def drive(ros_domain: int, live: Live) -> Callable[..., Driven]:
    """Drives a route through a node with an engine and parameters."""

    def drive(world: World, change: Callable[[Array], Array] = lambda xyz: xyz, **parameters: object) -> Driven:
        overrides = {**PARAMETERS, **{name.replace("__", "."): value for name, value in parameters.items()}}
        live.node(lambda _: LaneEngine(world, change), parameters=overrides)
        options = LiveOptions(closed_loop=True, lock_step=True, clock=True, form="png")
        renderer = Renderer(world, rig(32, 24))
        with Listener(renderer.cameras) as node:
            node.wait_until_heard(20.0)
            driven = LiveLoop(Journey(world), renderer, node, options, START_NS).run(float("inf"), threading.Event())
        assert driven.unanswered == 0
        return Driven(score(world, driven.trace), start_errors(node.heard, driven.trace))

    return drive


WORLD = quiet_world(2, 130.0)  # a left turn comes after 74 m


def test_the_lane_is_kept_through_a_turn(drive: Callable[..., Driven]) -> None:
    driven = drive(WORLD)
    assert driven.score.passed
    assert driven.score.max_offset_m < 0.4
    assert driven.start_errors.max() < 0.05


def test_a_mirrored_path_leaves_the_lane(drive: Callable[..., Driven]) -> None:
    result = drive(WORLD, lambda xyz: xyz * [1.0, -1.0, 1.0]).score
    assert not result.passed
    assert result.max_offset_m > 4.0


def test_odometry_taken_in_a_wrong_frame_leaves_the_lane(drive: Callable[..., Driven]) -> None:
    result = drive(WORLD, odometry__child_to_base=[0.0, 0.0, 0.0, 0.0, 0.0, 0.3]).score
    assert not result.passed
    assert result.max_offset_m > 2.0


def test_poses_that_are_a_tick_late_show(drive: Callable[..., Driven]) -> None:
    driven = drive(replace(WORLD, length=60.0), odometry__time_offset=0.1)
    assert np.median(driven.start_errors) > 0.4  # at 5 m/s and more


def test_it_drives_in_real_time_too(ros_domain: int, live: Live, capsys: pytest.CaptureFixture) -> None:
    """With losses, lateness and noise, and a node that drives straight on."""
    live.node(parameters=PARAMETERS)
    arguments = ["--closed-loop", "--clock", "--rate", "2", "--duration", "6", "--seed", "1006", "--size", "32", "24"]
    arguments += ["--drop", "0.02", "--jitter", "0.02", "--noise", "0.01"]
    assert send(build_parser().parse_args(arguments), threading.Event()) == 0
    table, ticks = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert "0 of 1 routes driven to their end" in table
    assert int(ticks.split()[0]) > 15
