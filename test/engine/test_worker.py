import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from scenes import observation

from alpamayo_ros.core.types import BadImageError, EngineError, EngineNotReadyError, Frame, SamplingOptions, SkipReason
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.engine.worker import Worker

OPTIONS = SamplingOptions(num_samples=2)
SECOND = 1_000_000_000


class Outcomes:
    """Collects outcomes and waits for them."""

    def __init__(self):
        self.all = []
        self._arrived = threading.Condition()

    def __call__(self, outcome):
        with self._arrived:
            self.all.append(outcome)
            self._arrived.notify_all()

    def wait(self, count):
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.all) >= count, timeout=5), self.reasons
        return self.all

    @property
    def reasons(self):
        return [outcome.skip.reason if outcome.skip else None for outcome in self.all]


@pytest.fixture
def start():
    """Starts workers whose clock stands at 0, so that an observation of t0 = -2 s is 2 s old; stops them afterwards."""
    workers = []

    def make(engine, **limits):
        outcomes = Outcomes()
        workers.append(Worker(engine, outcomes, now_ns=lambda: 0, **limits))
        return workers[-1], outcomes

    yield make
    for worker in workers:
        worker.stop(timeout=5)


class Gate:
    """Holds an engine inside predict until it is opened."""

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self, observation):
        self.entered.set()
        assert self.open.wait(5)


def test_an_observation_gives_one_outcome_with_its_prediction(start):
    worker, outcomes = start(NullEngine())
    worker.submit(observation(t0_ns=-SECOND // 10), OPTIONS)
    (outcome,) = outcomes.wait(1)
    assert outcome.skip is None
    assert outcome.observation.t0_ns == -SECOND // 10
    assert outcome.prediction.num_samples == 2
    assert outcome.engine_ms > 0


def test_the_wait_for_a_busy_engine_is_told_apart_from_the_node_s_own_time(start):
    gate = Gate()
    worker, outcomes = start(NullEngine(before=gate))
    worker.submit(observation(t0_ns=1), OPTIONS)
    assert gate.entered.wait(5)
    arrived = time.monotonic()
    worker.submit(observation(t0_ns=2), OPTIONS, arrived)
    time.sleep(0.2)
    gate.open.set()
    first, second = outcomes.wait(2)
    assert first.wait_ms == 0
    assert 200 <= second.wait_ms <= (time.monotonic() - arrived) * 1e3
    assert second.wait_ms + second.assemble_ms <= (second.done - arrived) * 1e3
    assert 0 < second.assemble_ms < 150


def test_preparing_frames_of_the_tick_is_no_wait_for_the_last_one(start):
    class Preparing(NullEngine):
        def prepare(self, frames):
            prepared.set()

    prepared = threading.Event()
    worker, outcomes = start(Preparing())
    arrived = time.monotonic()
    worker.prepare([Frame(1, 0, 1, b"", "jpeg")])
    assert prepared.wait(5)
    time.sleep(0.05)
    worker.submit(observation(), OPTIONS, arrived)
    (outcome,) = outcomes.wait(1)
    assert outcome.wait_ms == 0
    assert outcome.assemble_ms >= 50


def test_the_latest_observation_wins_and_the_replaced_one_is_reported_as_engine_busy(start):
    gate = Gate()
    worker, outcomes = start(NullEngine(before=gate))
    worker.submit(observation(t0_ns=1), OPTIONS)
    assert gate.entered.wait(5)
    worker.submit(observation(t0_ns=2), OPTIONS)
    worker.submit(observation(t0_ns=3), OPTIONS)
    gate.open.set()
    outcomes.wait(3)
    by_t0 = {outcome.observation.t0_ns: outcome for outcome in outcomes.all}
    assert by_t0[1].skip is None
    assert by_t0[2].skip.reason is SkipReason.ENGINE_BUSY
    assert by_t0[2].skip.numbers["engine_busy"] == {"replaced_by_t0_ns": 3}
    assert by_t0[3].skip is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("CUDA out of memory"), SkipReason.ENGINE_ERROR),
        (MemoryError("no memory"), SkipReason.ENGINE_ERROR),
        (BadImageError("camera 1, serial 7: the data are empty"), SkipReason.BAD_IMAGE),
        (EngineNotReadyError("the engine process 7 was killed"), SkipReason.ENGINE_NOT_READY),
    ],
)
def test_an_engine_that_raises_is_named_and_the_next_tick_works(start, error, reason):
    faults = [error]

    def fail_once(observation):
        if faults:
            raise faults.pop()

    worker, outcomes = start(NullEngine(before=fail_once))
    worker.submit(observation(t0_ns=1), OPTIONS)
    outcomes.wait(1)
    worker.submit(observation(t0_ns=2), OPTIONS)
    outcomes.wait(2)
    assert outcomes.reasons == [reason, None]
    assert str(error) in outcomes.all[0].skip.numbers[reason.value]["error"]


class NanEngine(NullEngine):
    def predict(self, observation, options):
        prediction = super().predict(observation, options)
        return replace(prediction, xyz=np.full_like(prediction.xyz, np.nan))


def test_a_result_that_is_no_number_is_never_delivered(start):
    worker, outcomes = start(NanEngine())
    worker.submit(observation(), OPTIONS)
    (outcome,) = outcomes.wait(1)
    assert outcome.prediction is None
    assert outcome.skip.reason is SkipReason.BAD_OUTPUT


def test_a_result_that_is_too_old_when_ready_is_dropped(start):
    worker, outcomes = start(NullEngine(), max_result_age=1.0)
    worker.submit(observation(t0_ns=-2 * SECOND), OPTIONS)
    (outcome,) = outcomes.wait(1)
    assert outcome.skip.reason is SkipReason.RESULT_TOO_OLD
    assert outcome.skip.numbers["result_too_old"] == {"age_s": 2.0, "max_result_age": 1.0}


def test_an_observation_that_has_grown_too_old_while_it_waited_is_not_started(start):
    begun = []
    worker, outcomes = start(NullEngine(before=begun.append), max_input_age=0.5)
    worker.submit(observation(t0_ns=-SECOND), OPTIONS)
    (outcome,) = outcomes.wait(1)
    assert outcome.skip.numbers == {"camera_stale": {"age_when_started_s": 1.0, "max_input_age": 0.5}}
    assert begun == []
    worker.submit(observation(t0_ns=-SECOND // 4), OPTIONS)
    assert outcomes.wait(2)[1].skip is None


def test_a_tick_in_time_is_not_overdue_while_it_is_being_published():
    entered, go_on = threading.Event(), threading.Event()
    worker = Worker(NullEngine(), lambda outcome: (entered.set(), go_on.wait(5)), now_ns=lambda: 0, deadline=0.05)
    worker.submit(observation(), OPTIONS)
    assert entered.wait(5)
    time.sleep(0.1)
    assert worker.overdue() is None
    assert worker.busy_for == 0
    go_on.set()
    assert worker.stop(timeout=5)


def test_a_tick_that_took_longer_than_the_deadline_is_dropped(start):
    worker, outcomes = start(NullEngine(delay=0.05), deadline=0.01)
    worker.submit(observation(), OPTIONS)
    (outcome,) = outcomes.wait(1)
    assert outcome.skip.reason is SkipReason.DEADLINE_MISSED


def test_a_new_epoch_drops_what_runs_and_what_waits(start):
    gate = Gate()
    worker, outcomes = start(NullEngine(before=gate))
    worker.submit(observation(t0_ns=1), OPTIONS)
    assert gate.entered.wait(5)
    worker.submit(observation(t0_ns=2), OPTIONS)
    worker.start_epoch(1)
    gate.open.set()
    outcomes.wait(2)
    assert outcomes.reasons == [SkipReason.TIME_JUMP, SkipReason.TIME_JUMP]
    worker.submit(observation(t0_ns=3, epoch=1), OPTIONS)
    outcomes.wait(3)
    assert outcomes.reasons[2] is None


class DraftRecorder(NullEngine):
    """Writes the tokens 1, 2, 3, and keeps the drafts that it was given."""

    def __init__(self):
        super().__init__()
        self.drafts = []

    def predict(self, observation, options):
        self.drafts.append(options.draft_token_ids)
        return replace(super().predict(observation, options), reasoning_token_ids=((1, 2, 3),) * options.num_samples)


def test_the_last_reasoning_is_the_next_draft_until_a_new_epoch(start):
    engine = DraftRecorder()
    worker, outcomes = start(engine)
    for count, epoch in enumerate((0, 0, 1), start=1):
        worker.start_epoch(epoch) if epoch else None
        worker.submit(observation(epoch=epoch), OPTIONS)
        outcomes.wait(count)
    assert engine.drafts == [(), (1, 2, 3), ()]


def frame(serial):
    return Frame(serial, camera=1, stamp_ns=0, data=b"", encoding="jpeg")


class PreparingEngine(NullEngine):
    def __init__(self, before=None):
        super().__init__(before=before)
        self.prepared = []

    def prepare(self, frames):
        if frames[0].serial < 0:
            raise ValueError("planted")
        self.prepared += [each.serial for each in frames]


def wait_until(condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_frames_are_prepared_in_the_order_in_which_they_come_when_the_engine_is_idle(start):
    engine = PreparingEngine()
    worker, _ = start(engine)
    worker.prepare([frame(1), frame(2)])
    worker.prepare([frame(3)])
    wait_until(lambda: engine.prepared == [1, 2, 3])


def test_an_observation_goes_before_frames_that_wait_and_takes_its_own_with_it(start):
    gate = Gate()
    engine = PreparingEngine(before=gate)
    worker, outcomes = start(engine)
    worker.submit(observation(), OPTIONS)
    assert gate.entered.wait(5)
    worker.prepare([frame(1), frame(2)])
    worker.submit(replace(observation(), frames={1: (frame(1),)}), OPTIONS)
    gate.open.set()
    outcomes.wait(2)
    wait_until(lambda: engine.prepared == [2])


def test_a_fault_while_preparing_does_not_end_the_worker(start):
    worker, outcomes = start(PreparingEngine())
    worker.prepare([frame(-1)])
    worker.submit(observation(), OPTIONS)
    assert outcomes.wait(1)[0].skip is None


@pytest.mark.parametrize("fault", [SystemExit(1), KeyboardInterrupt(), MemoryError(), RuntimeError("no such layer")])
def test_whatever_an_engine_raises_at_a_question_can_be_caught_and_has_words(start, fault):
    class Failing(NullEngine):
        def ask(self, *_):
            raise fault

    worker, _ = start(Failing())
    with pytest.raises(EngineError, match=type(fault).__name__):
        worker.ask(observation(), "What is ahead?", OPTIONS).result(5)


def test_questions_that_the_engine_does_not_come_to_are_refused_with_words(start):
    gate = Gate()
    worker, _ = start(NullEngine(before=gate))
    worker.submit(observation(), OPTIONS)
    assert gate.entered.wait(5)
    waits = worker.ask(observation(), "What is ahead?", OPTIONS)
    assert not worker.stop(timeout=0.0)
    late = worker.ask(observation(), "And now?", OPTIONS)
    gate.open.set()
    for answer in (waits, late):
        with pytest.raises(EngineError, match="stopped before it came to the question"):
            answer.result(5)


def test_a_question_is_answered_between_ticks(start):
    worker, _ = start(NullEngine())
    assert "no model" in worker.ask(observation(), "What is ahead?", OPTIONS).result(5)


def test_it_says_for_how_long_the_engine_has_been_busy(start):
    gate = Gate()
    worker, outcomes = start(NullEngine(before=gate))
    assert worker.busy_for == 0
    worker.submit(observation(), OPTIONS)
    assert gate.entered.wait(5)
    time.sleep(0.02)
    assert worker.busy_for >= 0.02
    gate.open.set()
    outcomes.wait(1)
    wait_until(lambda: worker.busy_for == 0)


def test_stop_waits_for_the_present_tick_and_says_when_it_does_not_end():
    gate = Gate()
    worker = Worker(NullEngine(before=gate), Outcomes(), now_ns=lambda: 0)
    worker.submit(observation(), OPTIONS)
    assert gate.entered.wait(5)
    assert not worker.stop(timeout=0.05)
    gate.open.set()
    assert worker.stop(timeout=5)


@pytest.mark.parametrize(
    "answer",
    [
        lambda good: None,
        lambda good: replace(good, xyz=None),
        lambda good: replace(good, xyz=np.zeros(())),
        lambda good: replace(good, reasoning_token_ids=()),
        lambda good: replace(good, reasoning=good.reasoning[:1]),
        lambda good: replace(good, finish_reasons=()),
    ],
)
def test_an_answer_that_is_none_is_a_bad_output_and_the_next_tick_runs(start, answer):
    class Odd(NullEngine):
        def predict(self, observation, options):
            good = super().predict(observation, options)
            return answer(good) if observation.t0_ns == 0 else good

    worker, outcomes = start(Odd())
    worker.submit(observation(), OPTIONS)
    outcomes.wait(1)
    worker.submit(observation(t0_ns=-SECOND // 10), OPTIONS)
    outcomes.wait(2)
    assert outcomes.reasons == [SkipReason.BAD_OUTPUT, None]
    assert outcomes.all[0].skip.numbers["bad_output"]["fault"]


class AlongsideEngine(NullEngine):
    """Prepares in any thread; `held` keeps it inside `prepare`."""

    prepares_alongside = True

    def __init__(self, before=None):
        super().__init__(before=before)
        self.batches, self.held, self.entered = [], threading.Event(), threading.Event()
        self.held.set()

    def prepare(self, frames):
        self.entered.set()
        assert self.held.wait(5)
        if frames[0].serial < 0:
            raise ValueError("planted")
        self.batches.append([each.serial for each in frames])


def test_frames_are_prepared_while_a_tick_runs_if_the_engine_can(start):
    gate = Gate()
    engine = AlongsideEngine(before=gate)
    worker, outcomes = start(engine)
    worker.submit(observation(), OPTIONS)
    assert gate.entered.wait(5)
    worker.prepare([frame(1)])
    wait_until(lambda: engine.batches == [[1]])
    assert outcomes.all == []
    gate.open.set()
    assert outcomes.wait(1)[0].skip is None


def test_a_tick_starts_while_frames_are_being_prepared_and_those_that_came_meanwhile_go_together(start):
    engine = AlongsideEngine()
    engine.held.clear()
    worker, outcomes = start(engine)
    worker.prepare([frame(1)])
    assert engine.entered.wait(5)
    for serial in (2, 3, 4):
        worker.prepare([frame(serial)])
    worker.submit(replace(observation(), frames={1: (frame(3),)}), OPTIONS)
    assert outcomes.wait(1)[0].skip is None
    engine.held.set()
    wait_until(lambda: engine.batches == [[1], [2, 4]])  # the tick took its own along


def test_a_fault_while_preparing_alongside_is_logged_and_ends_no_thread(start, caplog):
    engine = AlongsideEngine()
    worker, outcomes = start(engine)
    worker.prepare([frame(-1)])
    wait_until(lambda: "planted" in caplog.text)
    worker.prepare([frame(5)])
    wait_until(lambda: engine.batches == [[5]])
    worker.submit(observation(), OPTIONS)
    assert outcomes.wait(1)[0].skip is None


def test_a_new_epoch_forgets_the_frames_that_wait_to_be_prepared_alongside(start):
    engine = AlongsideEngine()
    engine.held.clear()
    worker, _ = start(engine)
    worker.prepare([frame(1)])
    assert engine.entered.wait(5)
    worker.prepare([frame(2)])
    worker.start_epoch(1)
    worker.prepare([frame(3)])
    engine.held.set()
    wait_until(lambda: engine.batches == [[1], [3]])


def test_an_engine_that_hangs_gathers_no_more_frames_than_a_tick_may_have(start):
    engine = AlongsideEngine()
    engine.held.clear()
    worker, _ = start(engine)
    worker.prepare([frame(1)])
    assert engine.entered.wait(5)
    for serial in range(10, 30, 2):
        worker.prepare([replace(frame(serial), camera=0), replace(frame(serial + 1), camera=6)])
    engine.held.set()
    wait_until(lambda: engine.batches == [[1], [22, 23, 24, 25, 26, 27, 28, 29]])


def test_stop_waits_for_what_is_being_prepared_too():
    engine = AlongsideEngine()
    engine.held.clear()
    worker = Worker(engine, Outcomes(), now_ns=lambda: 0)
    worker.prepare([frame(1)])
    assert engine.entered.wait(5)
    assert not worker.stop(timeout=0.05)
    engine.held.set()
    assert worker.stop(timeout=5)


def test_frames_older_than_the_tick_do_not_wait_for_ever(start):
    gate = Gate()
    engine = PreparingEngine(before=gate)
    worker, outcomes = start(engine)
    worker.submit(observation(), OPTIONS)
    assert gate.entered.wait(5)
    worker.prepare([replace(frame(1), stamp_ns=SECOND), replace(frame(2), stamp_ns=3 * SECOND)])
    worker.submit(replace(observation(), frames={1: (replace(frame(3), stamp_ns=2 * SECOND),)}), OPTIONS)
    gate.open.set()
    outcomes.wait(2)
    wait_until(lambda: engine.prepared == [2])
