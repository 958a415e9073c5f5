"""A bag through the observation builder and an engine, tick by tick, with what had arrived by then.

Messages are fed in the order in which they were received, and the clock is their time of reception. So the ticks are
those that the node would have started on the vehicle, with the same t0s, frames, poses and seeds. Time that the engine
takes is measured and does not count: every tick is predicted, none is replaced by a newer one or is too old.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from alpamayo_ros.core.checks import check_prediction
from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.core.observe import ObservationBuilder, build_observation_builder
from alpamayo_ros.core.select import Chosen, select
from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import (
    BadImageError,
    EngineError,
    EngineNotReadyError,
    Frame,
    Observation,
    Prediction,
    Skip,
    SkipReason,
)
from alpamayo_ros.engine.base import Engine, SupervisedEngine
from alpamayo_ros.evaluation.answers import Answer, Answers
from alpamayo_ros.evaluation.bag import BagMessage
from alpamayo_ros.evaluation.inputs import BagInputs

logger = logging.getLogger(__name__)

IDEAL_WINDOW_NS = 2_000_000_000  # how late a message may have been received and still be put in its place


@dataclass(frozen=True, eq=False)
class Tick:
    """One tick: a prediction with what it was made of, or a skip."""

    now_ns: int  # when it was decided, by the receive times
    skip: Skip | None = None
    observation: Observation | None = None
    prediction: Prediction | None = None  # None with a skip
    chosen: Chosen | None = None  # what the node would publish; None with a skip
    seed: int | None = None
    odometry_frame: str = "odom"
    prepare_ms: float = 0.0  # given to frames ahead of the tick
    engine_ms: float = 0.0  # from the observation to the prediction
    frames: tuple[Frame, ...] = field(default=(), repr=False)  # the anchor camera's

    @property
    def t0_ns(self) -> int | None:
        """The tick's time; None for a skip before there was any."""
        if self.observation is not None:
            return self.observation.t0_ns
        return None if self.skip is None else self.skip.t0_ns


class Replay:
    """Iterates over a bag's ticks. `progress_ns` and `builder` may be looked at meanwhile.

    A recording often goes on after its last image. What the node would say then, that the cameras are silent, is left
    out and counted by `after_last_image`; silence between images is not.

    Args:
        inputs: the bag's, for a rig.
        settings: of that rig; `rate_hz` says how many ticks a second.
        engine: warmed up.
        ideal: take every message as received at its own stamp.
        answers: of an earlier run that was interrupted; what they hold is not asked again, and what is asked is added.
    """

    def __init__(
        self,
        inputs: BagInputs,
        settings: Settings,
        engine: Engine,
        *,
        ideal: bool = False,
        answers: Answers | None = None,
    ) -> None:
        self.builder: ObservationBuilder = build_observation_builder(settings.builder_config())
        self.progress_ns = 0  # receive time of the newest message
        self.after_last_image = 0  # skips left out
        self._inputs = inputs
        self._settings = settings
        self._engine = engine
        self._ideal = ideal
        self._answers = answers
        self._drafts: tuple[int, ...] = ()
        self._epoch = self.builder.epoch
        self._prepare_ms = 0.0

    def __iter__(self) -> Iterator[Tick]:
        silent: list[Tick] = []
        for tick, has_image in self._decided():
            if tick is not None and tick.t0_ns is None:
                silent.append(tick)
            elif tick is not None or has_image:
                yield from silent
                silent.clear()
                if tick is not None:
                    yield tick
        self.after_last_image = len(silent)

    def _decided(self) -> Iterator[tuple[Tick | None, bool]]:
        """After every message: the tick that it decided, and whether it is an image."""
        for now_ns, message in self._clocked():
            self.progress_ns = message.receive_ns
            self._inputs.feed(self.builder, message, now_ns)
            if self.builder.epoch != self._epoch:
                self._epoch, self._drafts = self.builder.epoch, ()
            self._prepare()
            result = self.builder.poll(now_ns)
            tick = None
            if isinstance(result, Skip):
                tick = Tick(now_ns, skip=result)
            elif result is not None:
                tick = self._predict(result, now_ns)
            yield tick, self._inputs.is_image(message)

    def why_nothing(self) -> Skip | None:
        """After the last message: why no tick could be, for a bag that gave none."""
        seen = self.builder.observe(self.progress_ns)
        return seen if isinstance(seen, Skip) else None

    def _clocked(self) -> Iterator[tuple[int, BagMessage]]:
        messages = self._inputs.messages()
        if self._ideal:
            yield from by_stamp(messages)
        else:
            for message in messages:
                yield message.receive_ns, message

    def _prepare(self) -> None:
        frames = self.builder.frames_to_prepare()
        if frames and not (self._answers is not None and self._answers.knows_next):
            started = time.monotonic()
            self._engine.prepare(frames)
            self._prepare_ms += (time.monotonic() - started) * 1e3

    def _predict(self, observation: Observation, now_ns: int) -> Tick:
        settings = self._settings
        anchor = settings.camera(settings.anchor).index
        options = replace(settings.tick_options(observation), draft_token_ids=self._drafts)
        tick = Tick(
            now_ns,
            observation=observation,
            seed=options.seed,
            odometry_frame=self._inputs.odometry_frame,
            prepare_ms=self._prepare_ms,
            frames=observation.frames.get(anchor, ()),
        )
        self._prepare_ms = 0.0
        known = None if self._answers is None else self._answers.recall(observation.t0_ns, options.seed)
        if known is not None:
            tick = replace(tick, engine_ms=known.engine_ms, prepare_ms=known.prepare_ms)
            return self._choose(tick, observation, known.prediction)
        if isinstance(self._engine, SupervisedEngine):
            self._engine.wait_until_ready()  # time doesn't count here: a restart costs one tick, not all that follow
        started = time.monotonic()
        try:
            prediction = self._engine.predict(observation, options)
        except BadImageError as error:
            if error.serial is not None:
                self.builder.mark_bad_image(error.serial, str(error))
            return replace(tick, skip=_skip(SkipReason.BAD_IMAGE, observation, str(error)))
        except EngineNotReadyError as error:  # given up
            return replace(tick, skip=_skip(SkipReason.ENGINE_NOT_READY, observation, str(error)))
        except Exception as error:  # as in the node, so that one bad tick doesn't cost the others
            self._drafts = ()  # they may be what it stumbled over
            unforeseen = not isinstance(error, EngineError)
            logger.warning("the engine failed at t0 %d ns: %s", observation.t0_ns, error, exc_info=unforeseen)
            text = f"{type(error).__name__}: {error}"
            return replace(tick, skip=_skip(SkipReason.ENGINE_ERROR, observation, text))
        tick = replace(tick, engine_ms=(time.monotonic() - started) * 1e3)
        if self._answers is not None:
            self._answers.keep(Answer(observation.t0_ns, options.seed, prediction, tick.engine_ms, tick.prepare_ms))
        return self._choose(tick, observation, prediction)

    def _choose(self, tick: Tick, observation: Observation, prediction: Prediction) -> Tick:
        bad = check_prediction(observation=observation, prediction=prediction)
        if bad is not None:
            return replace(tick, skip=bad)
        self._drafts = prediction.reasoning_token_ids[0]
        return replace(tick, prediction=prediction, chosen=select(prediction, self._settings.output.selection))


def by_stamp(messages: Iterator[BagMessage]) -> Iterator[tuple[int, BagMessage]]:
    """Messages in the order of their stamps, with the stamp as the time of arrival.

    A message without a stamp, or with stamp 0, keeps the time at which it was received; so does one that was received
    more than 2 s after its stamp, as those of /tf_static are. The stamp of /tf is that of its first transform.
    """
    waiting: list[tuple[int, int, BagMessage]] = []
    for number, message in enumerate(messages):
        stamp = _stamp_ns(message.message)
        recent = 0 <= message.receive_ns - stamp <= IDEAL_WINDOW_NS
        heapq.heappush(waiting, (stamp if recent else message.receive_ns, number, message))
        while waiting[0][0] < message.receive_ns - IDEAL_WINDOW_NS:
            now_ns, _, ready = heapq.heappop(waiting)
            yield now_ns, ready
    while waiting:
        now_ns, _, ready = heapq.heappop(waiting)
        yield now_ns, ready


def _stamp_ns(content: Any) -> int:
    stamped = content.transforms[0] if getattr(content, "transforms", None) else content
    header = getattr(stamped, "header", None)
    return 0 if header is None else stamp_ns(header.stamp)


def _skip(reason: SkipReason, observation: Observation, error: str) -> Skip:
    return Skip(reason, observation.t0_ns, {reason.value: {"error": error}})
