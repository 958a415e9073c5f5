"""Faults of the engine, through everything between topics and topics: named, counted, and over with the next tick."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from ride import Event, Ride
from scenarios import START, frames, odometry

from alpamayo_ros.core.types import EngineError, Observation, Prediction, SamplingOptions, SkipReason
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros.drive import AskRefusedError

T0S = [START + 1.5 + k / 10 for k in range(20)]
FAULTY = T0S[5]


def drive(seconds: float = 3.5, **options: float) -> list[Event]:
    return frames("wide", 10, seconds) + odometry(seconds=seconds, **options)


class OnceFaulty(NullEngine):
    """Does something else at one tick."""

    def __init__(self, fault: Callable[[Prediction], Prediction]) -> None:
        super().__init__()
        self._fault = fault

    def predict(self, observation: Observation, options: SamplingOptions) -> Prediction:
        prediction = super().predict(observation, options)
        return self._fault(prediction) if round(observation.t0_ns * 1e-9, 6) == round(FAULTY, 6) else prediction


def raising(error: BaseException) -> Callable[[Prediction], Prediction]:
    def fault(prediction: Prediction) -> Prediction:
        raise error

    return fault


def with_nan(prediction: Prediction) -> Prediction:
    xyz = prediction.xyz.copy()
    xyz[0, 40, 1] = np.nan
    return replace(prediction, xyz=xyz)


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        (raising(EngineError("the model is gone")), "engine_error", "EngineError: the model is gone"),
        (raising(RuntimeError("CUDA out of memory")), "engine_error", "CUDA out of memory"),
        (raising(MemoryError()), "engine_error", "MemoryError"),
        (raising(SystemExit(1)), "engine_error", "SystemExit"),
        (raising(KeyboardInterrupt()), "engine_error", "KeyboardInterrupt"),
        (with_nan, "bad_output", "xyz is not finite"),
        (lambda prediction: replace(prediction, xyz=prediction.xyz[:, :10]), "bad_output", "shape"),
        (lambda prediction: None, "bad_output", "NoneType"),
    ],
    ids=["raises", "out of GPU memory", "out of memory", "exits", "interrupted", "NaN", "wrong shape", "nothing"],
)
def test_a_fault_at_one_tick_is_named_and_costs_that_tick(
    fault: Callable[[Prediction], Prediction], reason: str, words: str
) -> None:
    ride = Ride("wide", engine=OnceFaulty(fault))
    ride.play(drive())
    (skip,) = [skip for at, skip in ride.skips if at > T0S[0]]
    assert skip.reason.value == reason
    assert skip.t0_ns == round(FAULTY * 1e9)
    assert words in str(skip.numbers)
    assert ride.t0s() == pytest.approx([t0 for t0 in T0S if t0 != FAULTY])
    report = ride.drive.tick_report()
    assert (report.published, report.skip_counts[reason]) == (19, 1)
    ride.close()


def test_a_result_that_no_message_can_hold_is_a_bad_output() -> None:
    ride = Ride("wide")
    keep, ride.drive._sinks = ride.drive._sinks, replace(ride.drive._sinks, publish=lambda *_: 1 // 0)
    ride.play(drive(seconds=2.0))
    ride.drive._sinks = keep
    assert ride.published == []
    assert ride.drive.tick_report().skip_counts["bad_output"] == 5
    ride.close()


class Held(NullEngine):
    """Is at a tick or a question until it is let go."""

    def __init__(self, at: str) -> None:
        super().__init__(before=self.hold if at == "predict" else None)
        self.held, self.let_go, self.holds = threading.Event(), threading.Event(), False

    def hold(self, _: object) -> None:
        if self.holds:
            self.held.set()
            assert self.let_go.wait(20)

    def ask(self, observation: Observation, question: str, options: SamplingOptions) -> str:
        self.hold(question)
        return "A crossing."


@pytest.mark.parametrize(
    ("parameters", "reason"), [({"engine__deadline": 0.05}, "deadline_missed"), ({}, "result_too_old")]
)
def test_a_tick_that_hangs_is_said_while_it_does_and_ends_as_that(parameters: dict[str, float], reason: str) -> None:
    engine = Held("predict")
    ride = Ride("wide", engine=engine, **parameters)
    ride.play(drive(seconds=2.0))
    engine.holds, ride.settle = True, lambda: time.sleep(0.002)
    events = [event for event in drive(seconds=6.0) if event["at"] > START + 2.0]
    ride.play(event for event in events if event["at"] < START + 4.0)
    assert engine.held.is_set()
    report = ride.drive.tick_report()
    assert (report.ok, report.skip and report.skip.reason.value) == (False, reason)
    assert "still running" in str(report.skip and report.skip.numbers)
    assert [skip.reason.value for skip in ride.overdue] == [reason], "once per tick"
    assert report.replaced >= 15
    assert report.lost_to_questions == 0

    engine.holds, ride.settle = False, ride.wait_for_engine
    engine.let_go.set()
    ride.play(event for event in events if event["at"] >= START + 4.0)
    assert reason in ride.reasons(since=START + 2)
    assert ride.t0s(since=START + 4.2) == pytest.approx([START + k / 10 for k in range(42, 60)], abs=1e-3)
    assert ride.drive.tick_report().ok
    ride.close()


class TestQuestions:
    def test_while_moving_are_refused_unless_allowed(self) -> None:
        ride = Ride("wide")
        with pytest.raises(AskRefusedError, match="no scene yet"):
            ride.drive.ask("What is ahead?")
        ride.play(drive())
        with pytest.raises(AskRefusedError, match=r"moves at 10\.0 m/s.*ask\.while_moving"):
            ride.drive.ask("What is ahead?")
        ride.drive.change_settings(ride.drive._settings.with_values({"ask.while_moving": True}))
        answer, t0_ns = ride.drive.ask("What is ahead?")
        assert "no model" in answer.result(5)
        assert t0_ns == round(T0S[-1] * 1e9)
        ride.close()

    def test_are_refused_when_nobody_knows_whether_it_moves(self) -> None:
        ride = Ride("wide")
        ride.play(drive(speed=0.0))
        assert ride.drive.ask("What is ahead?")[0].result(5)
        ride.play(frames("wide", 10, 1, begin=START + 3.5))
        with pytest.raises(AskRefusedError, match=r"odometry is 0\.\d s old"):
            ride.drive.ask("What is ahead?")
        ride.close()

    def test_without_a_twist_the_poses_tell_that_it_moves(self) -> None:
        ride = Ride("wide")
        ride.play([{name: v for name, v in event.items() if name != "twist"} for event in drive(speed=1.0)])
        with pytest.raises(AskRefusedError, match=r"moves at 1\.0 m/s"):
            ride.drive.ask("What is ahead?")
        ride.close()

    def test_run_between_ticks_and_the_ticks_they_cost_are_counted(self) -> None:
        engine = Held("ask")
        ride = Ride("wide", engine=engine)
        ride.play(drive(speed=0.0))
        engine.holds, ride.settle = True, lambda: None
        answer, _ = ride.drive.ask("What is ahead?")
        assert engine.held.wait(5)
        ride.play(frames("wide", 10, 0.8, begin=START + 3.5) + odometry(begin=START + 3.5, seconds=0.8, speed=0.0))
        engine.let_go.set()
        assert answer.result(5) == "A crossing."
        ride.wait_for_engine()
        report = ride.drive.tick_report()
        assert report.skip_counts[SkipReason.ENGINE_BUSY.value] == report.lost_to_questions == 7
        assert report.published == len(ride.published)
        assert ride.t0s()[-1] == pytest.approx(START + 4.2), "the newest tick ran after the answer"
        ride.close()


def test_a_tick_under_way_when_the_clock_jumps_is_not_called_overdue() -> None:
    engine = Held("predict")
    ride = Ride("wide", engine=engine)
    ride.play(drive(seconds=2.0))
    engine.holds, ride.settle = True, lambda: time.sleep(0.002)
    ride.play(event for event in drive(seconds=2.3) if event["at"] > START + 2.0)
    assert engine.held.is_set()
    ride.play([{"at": START + 2.4, "type": "clock", "now": START + 100}])
    ride.drive.poll()
    assert ride.overdue == []
    engine.holds = False
    engine.let_go.set()
    ride.wait_for_engine()
    assert "time_jump" in ride.reasons(since=START + 2.3)
    ride.close()
