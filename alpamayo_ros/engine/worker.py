"""One thread around the engine: the latest observation wins, and no fault of the engine passes silently or kills."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import replace

from alpamayo_ros.core.checks import check_prediction
from alpamayo_ros.core.types import (
    FRAMES_PER_CAMERA,
    BadImageError,
    EngineError,
    EngineNotReadyError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
    Skip,
    SkipReason,
)
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.job import Job, Outcome, Question

logger = logging.getLogger(__name__)


class Worker:
    """Runs an engine in a thread of its own.

    Per turn it takes the newest observation, else a question, else one frame to prepare: preparing and questions
    never delay a tick by more than one piece of their work. An engine that prepares alongside is given frames by a
    second thread instead, as they come, all that wait at once.

    Args:
        engine: warmed up.
        deliver: is called with every Outcome, exactly one per submitted observation; from the worker's thread, or from
            the submitting one for an observation that was replaced.
        now_ns: the node's clock, for the age of results.
        max_result_age: s; older results are dropped as result_too_old.
        deadline: s that the engine may take; 0: no limit.
        max_input_age: s; an observation that has become older while it waited for the engine is not started.
    """

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[Outcome], None],
        now_ns: Callable[[], int],
        max_result_age: float = 1.0,
        deadline: float = 0.0,
        max_input_age: float = math.inf,
    ) -> None:
        self.max_result_age = max_result_age
        self.deadline = deadline
        self._engine = engine
        self._deliver = deliver
        self._max_input_age = max_input_age
        self._now_ns = now_ns
        lock = threading.Lock()
        self._wake = threading.Condition(lock)  # the engine's thread
        self._wake_preparing = threading.Condition(lock)  # the other one, if there is one: not at every tick
        self._job: Job | None = None
        self._questions: deque[Question] = deque()
        self._alongside = engine.prepares_alongside
        self._frames: dict[int, Frame] = {}  # to prepare, by serial, oldest first
        self._epoch = 0
        self._drafts: tuple[int, ...] = ()
        self._busy_since: float | None = None
        self._free_since = time.monotonic()  # monotonic s; of the engine's thread alone
        self._present: Job | Question | None = None
        self._lost_to_questions = 0
        self._stopping = False
        # daemons, so that an engine that hangs can't keep the process from ending; stop() joins them
        self._threads = [threading.Thread(target=self._run, name="engine", daemon=True)]
        if self._alongside:
            self._threads.append(threading.Thread(target=self._run_preparing, name="prepare", daemon=True))
        for thread in self._threads:
            thread.start()

    def submit(self, observation: Observation, options: SamplingOptions, arrived: float | None = None) -> None:
        """Predict this observation next, in place of one that waits. The worker adds the draft tokens.

        Args:
            observation: the newest one.
            options: without drafts.
            arrived: monotonic s, when the message that completed the observation came; None: just now.
        """
        with self._wake:
            since = time.monotonic() if arrived is None else arrived
            replaced, self._job = self._job, Job(observation, options, since)
            by_question = replaced is not None and isinstance(self._present, Question)
            self._lost_to_questions += by_question
            self._wake.notify()
        if replaced is not None:
            numbers: dict[str, object] = {"replaced_by_t0_ns": observation.t0_ns}
            if by_question:
                numbers["busy_with"] = "a question"
            self._deliver(replaced.skipped(SkipReason.ENGINE_BUSY, numbers))

    def prepare(self, frames: Iterable[Frame]) -> None:
        """Give these frames to the engine early, beside its work or when it has none.

        Those that wait already stay, as far as a tick may still have them: no more than its newest of every camera.
        """
        fresh = {frame.serial: frame for frame in frames}
        if fresh:
            with self._wake:
                self._frames = _newest_of_each_camera({**self._frames, **fresh})
                (self._wake_preparing if self._alongside else self._wake).notify()

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> Future[str]:
        """Ask about a scene, between two ticks; the answer, or the AlpamayoError that there is instead."""
        asked = Question(observation, question, options, Future())
        with self._wake:
            stopping = self._stopping
            if not stopping:
                self._questions.append(asked)
                self._wake.notify()
        if stopping:
            asked.refuse()
        return asked.answer

    def start_epoch(self, epoch: int) -> None:
        """Forget what waits and the drafts; a prediction under way is dropped as time_jump when it is done."""
        with self._wake:
            self._epoch = epoch
            self._drafts = ()
            self._frames.clear()
            forgotten, self._job = self._job, None
        if forgotten is not None:
            self._deliver(forgotten.skipped(SkipReason.TIME_JUMP, {"epoch": epoch}))

    @property
    def busy_for(self) -> float:
        """Seconds that the engine has been at its present tick or question; 0 when it is idle."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def lost_to_questions(self) -> int:
        """How many ticks were replaced by newer ones while the engine was at a question."""
        return self._lost_to_questions

    def overdue(self) -> Skip | None:
        """While the engine is at a tick whose time is over: the skip that it will end with, whenever it ends."""
        with self._wake:
            job, since, epoch = self._present, self._busy_since, self._epoch
        if not isinstance(job, Job) or since is None or job.observation.epoch != epoch:
            return None  # after a jump of time ages mean nothing, and the result is dropped anyway
        busy, age = round(time.monotonic() - since, 3), round(job.age(self._now_ns()), 3)
        if self.deadline and busy > self.deadline:
            numbers: dict[str, object] = {"busy_s": busy, "deadline": self.deadline, "state": "still running"}
            return job.skip(SkipReason.DEADLINE_MISSED, numbers)
        if age > self.max_result_age:
            numbers = {"busy_s": busy, "age_s": age, "max_result_age": self.max_result_age, "state": "still running"}
            return job.skip(SkipReason.RESULT_TOO_OLD, numbers)
        return None

    def stop(self, timeout: float = 3.0) -> bool:
        """End the threads after their present work.

        Returns:
            False when it is still busy after `timeout` s. The engine must not be closed then.
        """
        with self._wake:
            self._stopping = True
            self._job = None
            self._frames.clear()
            questions = list(self._questions)
            self._questions.clear()
            self._wake.notify()
            self._wake_preparing.notify()
        for question in questions:
            question.refuse()
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._stopping or self._job or self._questions or self._may_prepare)
                if self._stopping:
                    return
                job, self._job = self._job, None
                question = self._questions.popleft() if self._questions and job is None else None
                idle = job is None and question is None
                frame = self._frames.pop(next(iter(self._frames))) if idle else None
                self._present = job or question
                self._busy_since = None if idle else time.monotonic()
            try:
                if job is not None:
                    outcome = self._predict(job)
                    self._busy_since = None  # it is no longer overdue, however long it is being published
                    self._deliver(outcome)
                elif question is not None:
                    question.put_to(self._engine)
                elif frame is not None:
                    self._prepare([frame])
            except BaseException:  # deliver: a fault there must not end the thread
                logger.exception("the worker goes on after an error")
            finally:
                self._present = self._busy_since = None
                if not idle:  # frames of the very tick may be prepared between its last message and its start
                    self._free_since = time.monotonic()

    @property
    def _may_prepare(self) -> bool:
        """Whether there are frames for the engine's own thread."""
        return bool(self._frames) and not self._alongside

    def _run_preparing(self) -> None:
        while True:
            with self._wake_preparing:
                self._wake_preparing.wait_for(lambda: self._stopping or self._frames)
                if self._stopping:
                    return
                frames = list(self._frames.values())
                self._frames.clear()
            self._prepare(frames)

    def _prepare(self, frames: list[Frame]) -> None:
        try:
            self._engine.prepare(frames)
        except BaseException:  # nobody waits for it, and it must not end the thread; predict will fail by itself
            logger.exception("frames couldn't be prepared; the worker goes on")

    def _predict(self, job: Job) -> Outcome:
        with self._wake:
            drafts = self._drafts
            self._forget_frames(job.observation)
        age = job.age(self._now_ns())
        if age > self._max_input_age:
            numbers = {"age_when_started_s": round(age, 3), "max_input_age": self._max_input_age}
            return job.skipped(SkipReason.CAMERA_STALE, numbers)
        started = time.monotonic()
        try:
            prediction = self._engine.predict(job.observation, replace(job.options, draft_token_ids=drafts))
        except BadImageError as error:
            return job.skipped(SkipReason.BAD_IMAGE, {"error": str(error)}, error)
        except EngineNotReadyError as error:
            return job.skipped(SkipReason.ENGINE_NOT_READY, {"error": str(error)})
        except BaseException as error:  # SystemExit too: nobody would notice that this thread has ended
            unforeseen = not isinstance(error, EngineError)
            logger.error("the engine failed at t0 %d ns: %s", job.observation.t0_ns, error, exc_info=unforeseen)
            return job.skipped(SkipReason.ENGINE_ERROR, {"error": f"{type(error).__name__}: {error}"})
        done = time.monotonic()
        engine_s = done - started
        ready = max(job.arrived, self._free_since)
        outcome = Outcome(
            job.observation,
            prediction,
            skip=None,
            wait_ms=(ready - job.arrived) * 1e3,
            assemble_ms=(started - ready) * 1e3,
            engine_ms=engine_s * 1e3,
            done=done,
        )
        skip = self._refusal(job, prediction, engine_s)
        return outcome if skip is None else replace(outcome, prediction=None, skip=skip)

    def _forget_frames(self, observation: Observation) -> None:
        """Of the frames that wait: predict encodes the tick's own, and older ones are in none that may still come."""
        needed = [frame for frames in observation.frames.values() for frame in frames]
        for frame in needed:
            self._frames.pop(frame.serial, None)
        oldest_ns = min((frame.stamp_ns for frame in needed), default=0)
        self._frames = {key: frame for key, frame in self._frames.items() if frame.stamp_ns >= oldest_ns}

    def _refusal(self, job: Job, prediction: Prediction, engine_s: float) -> Skip | None:
        """Why this result may not be published."""
        epoch, bad = job.observation.epoch, check_prediction(observation=job.observation, prediction=prediction)
        with self._wake:
            if epoch != self._epoch:
                return job.skip(SkipReason.TIME_JUMP, {"epoch": epoch, "now_epoch": self._epoch})
            if bad is None:
                self._drafts = prediction.reasoning_token_ids[0]
        if self.deadline and engine_s > self.deadline:
            return job.skip(SkipReason.DEADLINE_MISSED, {"took_s": round(engine_s, 3), "deadline": self.deadline})
        if bad is not None:
            return bad
        age = job.age(self._now_ns())
        if age > self.max_result_age:
            numbers = {"age_s": round(age, 3), "max_result_age": self.max_result_age}
            return job.skip(SkipReason.RESULT_TOO_OLD, numbers)
        return None


def _newest_of_each_camera(frames: dict[int, Frame]) -> dict[int, Frame]:
    """As many as a tick has, so that an engine that is slow or hangs doesn't gather them."""
    counts: Counter[int] = Counter()
    kept = []
    for frame in reversed(frames.values()):
        counts[frame.camera] += 1
        if counts[frame.camera] <= FRAMES_PER_CAMERA:
            kept.append(frame)
    return {frame.serial: frame for frame in reversed(kept)}
