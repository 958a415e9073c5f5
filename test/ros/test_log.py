"""What the node's log says, as it comes on stderr."""

from __future__ import annotations

import time

import pytest
from live import STEP_NS, wait_until
from std_srvs.srv import SetBool

from alpamayo_ros.core.incoming import stamp_ns

YEARS_NS = 25 * 365 * 24 * 3600 * 1_000_000_000


class Log:
    """The lines so far."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self._text = ""

    def lines_with(self, text: str) -> list[str]:
        self._text += self._capfd.readouterr().err
        return [line for line in self._text.splitlines() if text in line]

    def wait_for(self, text: str) -> None:
        wait_until(lambda: self.lines_with(text), lambda: f"{text!r} in the log:\n{self._text}", 20)


@pytest.fixture
def log(capfd):
    return Log(capfd)


@pytest.fixture
def driver(live):
    live.node(**{"output.empty_after_skips": 1000})  # so that a busy machine does not bring the words anew
    return live.driver()


def test_it_names_the_topic_that_it_waits_for_then_says_once_that_paths_come(driver, log):
    log.wait_for("waiting_for_camera: cameras=['front_wide'] (nothing on /front yet)")
    driver.play()
    log.wait_for("paths are published from now on")
    driver.play()
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert len(log.lines_with("paths are published")) == 1


def test_to_be_disabled_is_said_once_and_is_no_warning(live, driver, log):
    driver.play()
    assert live.call(SetBool, "/alpamayo/set_enabled", SetBool.Request(data=False)).success
    driver.play()
    driver.wait_for_skip("disabled")
    time.sleep(1.2)  # a heartbeat
    (line,) = log.lines_with("disabled")
    assert line.startswith("[INFO]")


def test_stamps_of_years_ago_bring_the_question_whether_it_is_a_recording(driver, log):
    now_ns = time.time_ns()
    for step in range(10):
        driver.send_odometry(now_ns - YEARS_NS + step * STEP_NS)
        driver.send_frame(now_ns - YEARS_NS + step * STEP_NS)
    log.wait_for("is this a recording? Start the node with -p use_sim_time:=true")
    driver.wait_for_diagnostic("camera front_wide", "is this a recording?")
