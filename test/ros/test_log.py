"""What the node's log says, as it comes on /rosout."""

from __future__ import annotations

import time

import pytest
from live import STEP_NS, wait_until
from std_srvs.srv import SetBool

from alpamayo_ros.core.incoming import stamp_ns

INFO = 20  # rcl_interfaces/Log, which has it as a byte in one release and as a number in another
YEARS_NS = 25 * 365 * 24 * 3600 * 1_000_000_000


@pytest.fixture
def driver(live):
    """That has heard the node's log from its first line on."""
    driver = live.driver(connect=False)
    live.node()
    driver.connect()
    return driver


def wait_for_line(driver, text):
    wait_until(lambda: any(text in line.msg for line in driver.log), lambda: f"{text!r} in the log: {driver.log}", 20)


def test_it_names_the_topic_that_it_waits_for_then_says_once_that_paths_come(driver):
    wait_for_line(driver, "waiting_for_camera: cameras=['front_wide'] (nothing on /front yet)")
    driver.play()
    wait_for_line(driver, "paths are published from now on")
    driver.play()
    t0 = driver.play()
    driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    assert sum("paths are published" in line.msg for line in driver.log) == 1


def test_to_be_disabled_is_said_once_and_is_no_warning(live, driver):
    driver.play()
    assert live.call(SetBool, "/alpamayo/set_enabled", SetBool.Request(data=False)).success
    driver.play()
    driver.wait_for_skip("disabled")
    time.sleep(1.2)  # a heartbeat
    assert [line.level for line in driver.log if "disabled" in line.msg] == [INFO]


def test_stamps_of_years_ago_bring_the_question_whether_it_is_a_recording(driver):
    now_ns = time.time_ns()
    for step in range(10):
        driver.send_odometry(now_ns - YEARS_NS + step * STEP_NS)
        driver.send_frame(now_ns - YEARS_NS + step * STEP_NS)
    wait_for_line(driver, "is this a recording? Start the node with -p use_sim_time:=true")
    driver.wait_for_diagnostic("camera front_wide", "is this a recording?")
