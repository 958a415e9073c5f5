"""A synthetic drive over topics: the expert drives, or the vehicle follows the trajectories of a node."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.evaluation.drive_bag import BASE_LINK
from alpamayo_ros.sensors.camera_model import CameraModel
from alpamayo_ros.sim.closed_loop import LEAD_IN_S, is_over
from alpamayo_ros.sim.drive_messages import SECOND, DriveMessages
from alpamayo_ros.sim.follower import FollowedPath, Follower
from alpamayo_ros.sim.imperfections import Imperfections
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.scoring import Trace, TraceRecorder
from alpamayo_ros.sim.vehicle import VehicleState
from alpamayo_ros.sim.world import World
from alpamayo_ros.tools.drive_node import Answer, DriveNode

ANSWER_TIMEOUT_S = 20.0  # real time that a tick's answer is waited for in lock step
SILENCE_S = 10.0  # simulated: without any trajectory for so long, nothing will come
SETTLE_S = 0.3  # real time for a jump of the clock to arrive before what follows it


@dataclass(frozen=True)
class LiveOptions:
    """How a drive goes over topics."""

    closed_loop: bool = False  # follow the node's trajectories
    lock_step: bool = False  # time goes on when a tick has been answered
    clock: bool = False  # publish /clock
    speed: float = 1.0  # times real time; lock step goes as fast as it can
    latency_s: float = 0.1  # from t0 until a trajectory is followed, if it is there by then
    camera_hz: int = 10
    form: str = "jpeg"
    imperfections: Imperfections = field(default_factory=Imperfections)


@dataclass(frozen=True, eq=False)
class LiveDrive:
    """How it went."""

    trace: Trace
    end_ns: int
    trajectories: int  # that came in time to be followed
    unanswered: int  # ticks in lock step that got neither trajectory nor reason
    skips: Counter[str]


def drive_live(
    world: World,
    cameras: dict[str, CameraModel],
    node: DriveNode,
    options: LiveOptions,
    *,
    start_ns: int,
    seconds: float,
    stop: threading.Event,
) -> LiveDrive:
    """Drive until the route or the time is over, or `stop` is set.

    In a closed loop the expert drives for the first 1.6 s, and on until the first trajectory is there.

    Args:
        world: whose route is driven.
        cameras: by name.
        node: sends and hears; its subscribers are there already.
        options: how.
        start_ns: the first stamp.
        seconds: of simulated time at most.
        stop: ends it.

    Raises:
        AlpamayoError: in a closed loop no trajectory comes.
    """
    journey, follower, recorder = Journey(world), Follower(options.latency_s), TraceRecorder()
    if options.clock:
        node.publish_clock(start_ns)
        node.spin(SETTLE_S)
    node.take_answers()
    node.take_skips()
    messages = DriveMessages(
        journey,
        cameras,
        node,
        start_ns=start_ns,
        camera_hz=options.camera_hz,
        form=options.form,
        imperfections=options.imperfections,
    )
    states: dict[int, VehicleState] = {}
    skips = Counter[str]()
    trajectories = unanswered = 0
    progress_s = farthest = 0.0
    begun = time.monotonic()
    while journey.time_s < seconds and not is_over(journey, progress_s) and not stop.is_set():
        if options.clock:
            node.publish_clock(messages.now_ns)
        messages.write()
        states[messages.now_ns] = journey.vehicle
        led_in = journey.time_s > LEAD_IN_S - STEP_S / 2
        if messages.is_image_due and led_in:
            recorder.add(journey)
        if options.lock_step:
            if messages.is_image_due and led_in:
                node.wait_for(messages.now_ns, ANSWER_TIMEOUT_S)
        else:
            node.spin(begun + journey.time_s / options.speed - time.monotonic())
        answers = node.take_answers()
        new = node.take_skips()
        if options.lock_step and messages.is_image_due and led_in:
            unanswered += not answers and not new
        skips += new if led_in else Counter()
        for answer in answers:
            if answer.t0_ns in states:
                follower.take(_followed(answer, states[answer.t0_ns], start_ns))
                trajectories += 1
        if options.closed_loop and trajectories and journey.time_s > LEAD_IN_S + options.latency_s - STEP_S / 2:
            journey.move(*follower.control(journey.vehicle, journey.time_s))
        else:
            journey.drive()
        if options.closed_loop and not trajectories and journey.time_s > SILENCE_S:
            why = f"ticks skipped: {dict(skips) or 'none'}"
            raise AlpamayoError(f"no trajectory came in the first {SILENCE_S:.0f} s of the drive; {why}")
        if journey.along > farthest + 1.0:
            progress_s, farthest = journey.time_s, journey.along
    recorder.add(journey)
    return LiveDrive(recorder.trace(), messages.now_ns, trajectories, unanswered, skips)


def _followed(answer: Answer, vehicle: VehicleState, start_ns: int) -> FollowedPath:
    """A trajectory in the world; odom is the world."""
    t0_s = (answer.t0_ns - start_ns) / SECOND
    if answer.frame_id == BASE_LINK:
        return FollowedPath.from_vehicle(t0_s, vehicle, answer.xy)
    return FollowedPath(t0_s, np.concatenate([[vehicle[:2]], answer.xy]))
