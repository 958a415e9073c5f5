"""What happens between the topics: inputs to the builder, observations to the worker, outcomes out. No ROS here.

Every method may be called from any thread; one lock makes the order. Nothing is published while it is held. Another
one, taken before it, makes the order of what consumers see: a path, or that there is none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import RLock
from typing import Any

from alpamayo_ros.core.accounting import StreamCounts
from alpamayo_ros.core.navigation import text_fault
from alpamayo_ros.core.observe import build_observation_builder
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import AlpamayoError, EgoPose, Observation, Prediction, Skip, SkipReason
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.job import Outcome
from alpamayo_ros.engine.worker import Worker
from alpamayo_ros.ros.intake import Intake, intake_of
from alpamayo_ros.ros.news import News
from alpamayo_ros.ros.report import Tally, TickReport

logger = logging.getLogger(__name__)

USUAL_ODOMETRY_FRAME = "odom"  # by REP-105


class AskRefusedError(AlpamayoError):
    """A question that can't be put now; the message says why."""


@dataclass(frozen=True)
class Sinks:
    """Where the drive's results go. Called from the thread of the worker, of an input or of the heartbeat."""

    publish: Callable[[Outcome, str], float]  # with a prediction, and the odometry's frame; returns its age (s) then
    announce: Callable[[Skip, int], None]  # why there was none, and how many there were in a row
    ticked: Callable[[TickReport], None]  # after either: news for the status; from a thread of its own
    restarted: Callable[[], None]  # a new epoch: what was shown of the old one is void
    overdue: Callable[[Skip], None]  # the engine is still at a tick whose time is over; once per tick


class Drive:
    """The builder, the worker and the counts of one configured node.

    Args:
        settings: as parsed.
        engine: warmed up.
        now_ns: the node's clock.
        sinks: where results go.
    """

    def __init__(self, settings: Settings, engine: Engine, now_ns: Callable[[], int], sinks: Sinks) -> None:
        self._settings = settings
        self._now_ns = now_ns
        self._sinks = sinks
        self._lock = RLock()
        self._publishing = RLock()  # always taken before the other
        self._builder = build_observation_builder(settings.builder_config())
        self._tally = Tally()
        self._epoch = self._builder.epoch
        self._enabled = True
        self._active = False
        self._silent = True  # no tick since the last heartbeat
        self._stopped_ns: int | None = None  # where the clock stands, when it does
        self._newest: Observation | None = None
        self._overdue_t0_ns: int | None = None  # of the tick that was last said to be overdue
        self._news = News(sinks.ticked)
        timing = settings.timing
        self._worker = Worker(
            engine, self._on_outcome, now_ns, timing.max_result_age, settings.engine.deadline, timing.max_input_age
        )

    # What comes in

    def add_frame(self, camera: str, image: Mapping[str, Any]) -> None:
        """A camera message has come; `image` holds the builder's arguments."""
        arrived, now_ns = time.monotonic(), self._now_ns()
        with self._lock:
            self._builder.add_frame(camera, now_ns=now_ns, **image)
        self._advance(now_ns, arrived)

    def add_pose(self, pose: EgoPose, frame_id: str, child_frame_id: str) -> None:
        """A pose of base_link has come."""
        arrived, now_ns = time.monotonic(), self._now_ns()
        with self._lock:
            self._builder.add_pose(pose, frame_id=frame_id, child_frame_id=child_frame_id, now_ns=now_ns)
        self._advance(now_ns, arrived)

    def set_navigation(self, text: str) -> None:
        """A navigation text has come; an empty one, or one that can't be used, clears it."""
        fault = text_fault(text)
        if fault is not None:
            logger.warning("the navigation text is refused, and the one before no longer in force: %s", fault)
        with self._lock:
            self._builder.set_navigation(text, self._now_ns())

    def poll(self) -> None:
        """Time has passed: a tick that waited in vain ends, and one that the engine is too long at is said."""
        self._advance(self._now_ns())
        with self._publishing:
            overdue = self._worker.overdue()
            if overdue is not None and overdue.t0_ns != self._overdue_t0_ns:
                self._overdue_t0_ns = overdue.t0_ns
                self._sinks.overdue(overdue)

    # What controls it

    def activate(self) -> None:
        """From now on inputs come, and the lack of them is reported."""
        self._active = True

    def deactivate(self) -> None:
        """No inputs come any more; those that came are forgotten."""
        self._active = False
        self.reset("deactivated")

    @property
    def is_active(self) -> bool:
        """Whether it was activated."""
        return self._active

    @property
    def is_enabled(self) -> bool:
        """Whether ticks may run."""
        return self._enabled

    def set_enabled(self, enabled: bool) -> None:
        """While disabled, inputs are kept and every tick is skipped as disabled, one under way included.

        When it returns, no path is on its way any more.
        """
        with self._publishing, self._lock:
            self._enabled = enabled
            self._block(SkipReason.DISABLED, not enabled)

    def reset(self, why: str) -> None:
        """Forget all inputs and raise the epoch; results of older epochs are dropped."""
        with self._lock:
            self._builder.reset(self._now_ns(), why)
        self._note_epoch()

    def clock_began(self) -> None:
        """Simulated time has begun: nothing was before."""
        with self._lock:
            self._builder.clock_began(self._now_ns())
        self._note_epoch()

    def clock_jumped(self) -> None:
        """The node's clock jumped: start anew."""
        with self._lock:
            self._builder.clock_jumped(self._now_ns())
        self._note_epoch()

    def change_settings(self, settings: Settings) -> None:
        """Take over what may change while running."""
        with self._lock:
            self._settings = settings
            self._builder.config = settings.builder_config()
        self._worker.max_result_age = settings.timing.max_result_age
        self._worker.deadline = settings.engine.deadline

    def heartbeat(self, now_ns: int, clock_stopped_for: float) -> None:
        """Once a second: end a tick that waits too long, and say why when there was no tick at all.

        Args:
            now_ns: the node's clock, read before the other.
            clock_stopped_for: s of steady time; 0 when it runs.
        """
        if not self._active:
            return
        with self._lock:
            self._stopped_ns = now_ns if clock_stopped_for else None
            self._block(SkipReason.CLOCK_STOPPED, bool(clock_stopped_for), steady_s=round(clock_stopped_for, 1))
        self._advance(now_ns)
        with self._lock:
            silent, self._silent = self._silent, True
            seen = self._builder.observe(now_ns)
        if silent and isinstance(seen, Skip) and not self._worker.busy_for:
            self._skip(seen)
            self._silent = True  # that was no tick

    def ask(self, question: str) -> tuple[Future[str], int]:
        """Ask about the scene of the newest tick: the answer to come, and that scene's t0.

        Raises:
            AskRefusedError: there has been no tick yet, or the vehicle may be moving and `ask.while_moving` is false.
            ValueError: the question is empty or too long.
        """
        fault = text_fault(question) if question.strip() else "it is empty"
        if fault is not None:
            raise ValueError(f"the question can't be asked: {fault}")
        now_ns = self._now_ns()
        with self._lock:
            scene, settings = self._newest, self._settings
            standing, motion = self._builder.inputs.odometry.is_standing(now_ns)
        if scene is None:
            raise AskRefusedError("there is no scene yet: no tick had all of its inputs")
        if not (standing or settings.ask.while_moving):
            raise AskRefusedError(
                f"{motion}: a question holds up the ticks, so it is answered at standstill only; set the parameter "
                "ask.while_moving to true to ask nevertheless"
            )
        options = settings.tick_options(scene)
        return self._worker.ask(scene, question, options), scene.t0_ns

    def stop(self, timeout: float) -> bool:
        """Stop the worker and tell the last news; False when the engine is still busy after `timeout` s."""
        return self._worker.stop(timeout) and self._news.stop(timeout)

    # What there is to know

    def tick_report(self) -> TickReport:
        """The newest tick, and all of them counted."""
        worker = self._worker
        with self._lock:
            return self._tally.snapshot(worker.busy_for, worker.overdue(), worker.lost_to_questions)

    def counts(self) -> Mapping[str, StreamCounts]:
        """What became of every message, per camera and for "odometry"."""
        with self._lock:
            return self._builder.counts()

    def intake(self) -> Intake:
        """What the builder did with its inputs."""
        now_ns = self._now_ns()
        with self._lock:
            return intake_of(self._builder, now_ns)

    @property
    def odometry_frame(self) -> str:
        """The odometry's frame_id; the usual one until one has come."""
        return self._builder.odometry_frame or USUAL_ODOMETRY_FRAME

    # How

    def _block(self, reason: SkipReason, holds: bool, **numbers: Any) -> None:
        if holds:
            self._builder.block(reason, **numbers)
        else:
            self._builder.unblock(reason)

    def _note_epoch(self) -> None:
        """Tell the others when the builder has begun a new epoch; without the lock."""
        if self._builder.epoch == self._epoch:
            return
        with self._publishing, self._lock:
            if self._builder.epoch != self._epoch:
                self._epoch = self._builder.epoch
                self._newest = None
                self._worker.start_epoch(self._epoch)
                self._sinks.restarted()

    def _advance(self, now_ns: int, arrived: float | None = None) -> None:
        """See whether a tick is decided, by a message that arrived then (monotonic s) or by time."""
        self._note_epoch()
        with self._lock:
            if self._builder.epoch != self._epoch:
                return  # by another thread's message, which will ask again
            if self._stopped_ns not in (None, now_ns):  # the clock goes on: ticks needn't wait for a heartbeat
                self._stopped_ns = None
                self._block(SkipReason.CLOCK_STOPPED, False)
            self._worker.prepare(self._builder.frames_to_prepare())
            result = self._builder.poll(now_ns)
            settings = self._settings
            if isinstance(result, Observation):
                self._newest = result
        if isinstance(result, Observation):
            self._worker.submit(result, settings.tick_options(result), arrived)
        elif result is not None:
            self._skip(result)

    def _on_outcome(self, outcome: Outcome) -> None:
        skip = outcome.skip
        bad = outcome.bad_image
        if bad is not None and bad.serial is not None:
            with self._lock:
                self._builder.mark_bad_image(bad.serial, str(bad))
        if skip is not None and skip.reason is SkipReason.ENGINE_BUSY:
            with self._lock:
                self._tally.replaced(skip)
        elif skip is not None:
            self._skip(skip)
        elif outcome.prediction is not None:
            refusal = self._publish(outcome, outcome.prediction)
            if refusal is not None:
                self._skip(refusal)

    def _publish(self, outcome: Outcome, prediction: Prediction) -> Skip | None:
        """Publish a result, or say why it isn't."""
        t0_ns, epoch = outcome.observation.t0_ns, outcome.observation.epoch
        with self._publishing:
            if not self._enabled:
                return Skip(SkipReason.DISABLED, t0_ns, {SkipReason.DISABLED.value: {}})
            if epoch != self._epoch:
                return Skip(SkipReason.TIME_JUMP, t0_ns, {SkipReason.TIME_JUMP.value: {"epoch": epoch}})
            try:
                age = self._sinks.publish(outcome, self.odometry_frame)
            except Exception as error:  # numbers that no message can hold
                logger.exception("the result can't be published")
                numbers = {"error": f"{type(error).__name__}: {error}"}
                return Skip(SkipReason.BAD_OUTPUT, t0_ns, {SkipReason.BAD_OUTPUT.value: numbers})
        stages = {
            "wait": outcome.wait_ms,
            "assemble": outcome.assemble_ms,
            **prediction.timings.stages_ms,
            "publish": (time.monotonic() - outcome.done) * 1e3,
        }
        with self._lock:
            self._silent = False
            self._tally.published(t0_ns, stages, age)
        self._news.add(self.tick_report())
        return None

    def _skip(self, skip: Skip) -> None:
        with self._lock:
            self._silent = False
            self._tally.skipped(skip)
            in_a_row = self._tally.skips_in_a_row
        self._sinks.announce(skip, in_a_row)
        self._news.add(self.tick_report())
