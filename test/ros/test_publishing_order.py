"""What consumers see last is what holds: no path after they were told that there is none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from ride import Ride
from scenes import observation

from alpamayo_ros.core.types import SamplingOptions
from alpamayo_ros.engine.job import Outcome
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros.drive import Drive


class SlowToPublish(Ride):
    """Publishing a path takes until `go_on` is set."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        super().__init__("wide")

    def _publish(self, outcome: Outcome, frame_id: str) -> float:
        self.entered.set()
        assert self.go_on.wait(5)
        self.log.append("path")
        return super()._publish(outcome, frame_id)


@pytest.fixture
def ride() -> Iterator[SlowToPublish]:
    ride = SlowToPublish()
    yield ride
    ride.go_on.set()
    ride.close()


def result() -> Outcome:
    scene = observation()
    return Outcome(scene, NullEngine().predict(scene, SamplingOptions()), None)


@pytest.mark.parametrize(
    ("void", "reason"),
    [
        (lambda drive: drive.set_enabled(False), "disabled"),
        (lambda drive: drive.reset("asked for"), "time_jump"),
        (lambda drive: drive.clock_jumped(), "time_jump"),
    ],
    ids=["disabled", "reset", "the clock jumped"],
)
def test_what_makes_paths_void_waits_for_the_one_that_is_going_out(
    ride: SlowToPublish, void: Callable[[Drive], None], reason: str
) -> None:
    publishing = threading.Thread(target=ride.drive._on_outcome, args=(result(),))
    publishing.start()
    assert ride.entered.wait(5)
    voiding = threading.Thread(target=lambda: (void(ride.drive), ride.log.append("void")))
    voiding.start()
    voiding.join(0.1)
    assert ride.log == []
    ride.go_on.set()
    publishing.join(5)
    voiding.join(5)
    assert ride.log == ["path", "void"]
    ride.drive._on_outcome(result())
    assert ride.log == ["path", "void"]
    assert ride.skips[-1][1].reason.value == reason
