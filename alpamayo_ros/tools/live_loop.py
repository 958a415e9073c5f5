"""A synthetic drive over topics: the expert drives, or the vehicle follows the trajectories of a node."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.evaluation.drive_bag import BASE_LINK
from alpamayo_ros.sim.closed_loop import LEAD_IN_S, Progress
from alpamayo_ros.sim.drive_messages import SECOND, STEP_NS, DriveMessages
from alpamayo_ros.sim.follower import FollowedPath, Follower
from alpamayo_ros.sim.imperfections import Imperfections
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.scoring import Trace, TraceRecorder
from alpamayo_ros.sim.vehicle import VehicleState
from alpamayo_ros.tools.drive_node import Answer, DriveNode

ANSWER_TIMEOUT_S = 20.0  # real time that a tick's answer is waited for in lock step
SILENCE_S = 10.0  # simulated: without any trajectory for so long, nothing will come
Watch = Callable[[Journey, Answer], None]  # the journey as it is when the answer is heard
JUMP_TIMEOUT_S = 5.0  # real time that a node may take to notice a jump of the clock: its status comes once a second
SETTLE_S = 0.3  # the same where no node needs to be there
DELIVERY_NS = 1_000_000  # from a stamp until its messages are there: a status without a tick has no tick's stamp


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
    end_ns: int  # the last stamp
    trajectories: int  # that were followed
    unanswered: int  # ticks in lock step that got neither trajectory nor reason
    skips: Counter[str]


class LiveLoop:
    """One drive over topics.

    In a closed loop the expert drives for the first 1.6 s, and on until the first trajectory is there.

    Args:
        journey: at its beginning, or under way.
        renderer: of its world, with the cameras.
        node: sends and hears; its subscribers are there already.
        options: how.
        start_ns: the journey's beginning; stamps count from there.
        watch: is shown every trajectory that is followed.
    """

    def __init__(
        self,
        journey: Journey,
        renderer: Renderer,
        node: DriveNode,
        options: LiveOptions,
        start_ns: int,
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch
        self._node, self._options, self._start_ns = node, options, start_ns
        self._journey, self._follower, self._recorder = journey, Follower(options.latency_s), TraceRecorder()
        self._begin_s = journey.time_s
        self._first_tick_ns = start_ns + round((journey.time_s + LEAD_IN_S) / STEP_S) * STEP_NS
        if options.clock:
            needs_node = options.closed_loop or options.lock_step
            begin_ns = start_ns + round(journey.time_s / STEP_S) * STEP_NS
            node.set_clock(begin_ns, JUMP_TIMEOUT_S if needs_node else SETTLE_S)
        node.take_answers()  # of an earlier drive
        node.take_skips()
        self._messages = DriveMessages(
            self._journey,
            renderer,
            node,
            start_ns=start_ns,
            camera_hz=options.camera_hz,
            form=options.form,
            imperfections=options.imperfections,
        )
        self._states: dict[int, VehicleState] = {}  # by stamp
        self._skips = Counter[str]()
        self._trajectories = self._unanswered = 0

    def run(self, seconds: float, stop: threading.Event) -> LiveDrive:
        """Drive until the route, the journey's time (s) or hope is over, or `stop` is set.

        Raises:
            AlpamayoError: in a closed loop no trajectory comes.
        """
        journey, options = self._journey, self._options
        progress, begun = Progress(), time.monotonic()
        while journey.time_s < seconds and not progress.is_over(journey) and not stop.is_set():
            is_tick = self._send()
            if is_tick:
                self._recorder.add(journey)
            if not options.lock_step:
                self._node.spin(begun + self._driven_s / options.speed - time.monotonic())
            elif is_tick:
                self._unanswered += not self._node.wait_for(self._messages.now_ns, ANSWER_TIMEOUT_S)
            self._hear()
            self._move()
        self._recorder.add(journey)
        end_ns = self._messages.now_ns
        return LiveDrive(self._recorder.trace(), end_ns, self._trajectories, self._unanswered, self._skips)

    @property
    def _driven_s(self) -> float:
        """Since the loop began."""
        return self._journey.time_s - self._begin_s

    def _send(self) -> bool:
        """This moment's messages; whether the node can answer them."""
        if self._options.clock:
            self._node.publish_clock(self._messages.now_ns + DELIVERY_NS)
        self._messages.write()
        self._states[self._messages.now_ns] = self._journey.vehicle
        return self._messages.is_image_due and self._driven_s > LEAD_IN_S - STEP_S / 2

    def _hear(self) -> None:
        answers = self._node.take_answers()
        self._skips += self._node.take_skips(self._first_tick_ns)
        for answer in answers:
            if answer.t0_ns in self._states:
                self._follower.take(self._followed(answer))
                self._trajectories += 1
                if self._watch is not None:
                    self._watch(self._journey, answer)

    def _followed(self, answer: Answer) -> FollowedPath:
        """A trajectory in the world; odom is the world."""
        t0_s = (answer.t0_ns - self._start_ns) / SECOND
        vehicle = self._states[answer.t0_ns]
        if answer.frame_id == BASE_LINK:
            return FollowedPath.from_vehicle(t0_s, vehicle, answer.xy)
        return FollowedPath(t0_s, np.concatenate([[vehicle[:2]], answer.xy]))

    def _move(self) -> None:
        journey, options = self._journey, self._options
        is_led_in = self._driven_s > LEAD_IN_S + options.latency_s - STEP_S / 2
        if options.closed_loop and self._trajectories and is_led_in:
            journey.move(*self._follower.control(journey.vehicle, journey.time_s))
            return
        journey.drive()
        if options.closed_loop and not self._trajectories and self._driven_s > SILENCE_S:
            why = f"ticks skipped: {dict(self._skips) or 'none'}"
            raise AlpamayoError(f"no trajectory came in the first {SILENCE_S:.0f} s of the drive; {why}")
