"""Simulated time: no clock, a late clock, a clock that jumps."""

import threading
import time

import pytest
from rosgraph_msgs.msg import Clock

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.ros.clock import ClockWatch
from alpamayo_ros.ros.convert import time_message

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


class ClockPublisher:
    """Publishes /clock in a thread, running on from wherever it is set."""

    def __init__(self, node):
        self._publisher = node.create_publisher(Clock, "/clock", 10)
        self._stop = threading.Event()
        self.set(START)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def set(self, now_ns):
        self._offset_ns = now_ns - time.monotonic_ns()

    @property
    def now_ns(self):
        return time.monotonic_ns() + self._offset_ns

    def _run(self):
        while not self._stop.wait(0.02):
            self._publisher.publish(Clock(clock=time_message(self.now_ns)))

    def stop(self):
        self._stop.set()
        self._thread.join()


def test_without_a_clock_it_says_so_in_status_and_diagnostics(live):
    live.node(use_sim_time=True)
    driver = live.driver(connect=False)
    driver.wait_for_skip("clock_stopped", timeout=10)
    diagnostic = driver.wait_for_diagnostic("clock", "use_sim_time is true, and /clock has not moved")
    assert diagnostic.level == b"\x02"


def test_a_clock_that_starts_late_is_taken_and_then_stopped_and_set_back(live):
    live.node(use_sim_time=True)
    driver = live.driver()
    clock = ClockPublisher(driver)  # to rclpy the first /clock is a jump of 1.7e9 s
    try:
        driver.wait_for_diagnostic("clock", "simulated time")
        driver.wait_for("status", lambda status: status.epoch > 0)
        t0 = driver.play(start_ns=clock.now_ns)
        driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
        assert not any("time_jump" in status.skip_reasons for status in driver.received["status"])
        driver.diagnostics.clear()
        camera = driver.wait_for_diagnostic("camera front_wide", "ok")
        age = {pair.key: pair.value for pair in camera.values}["age_s"]
        assert abs(float(age)) < 30, "ages are by the node's clock, not the machine's"

        epoch = driver.received["status"][-1].epoch
        clock.set(START - 20 * SECOND)
        driver.wait_for("status", lambda status: status.epoch > epoch)
        t0 = driver.play(start_ns=clock.now_ns)
        driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0)
    finally:
        clock.stop()
    driver.wait_for_skip("clock_stopped", timeout=10)


def test_system_time_that_is_set_back_is_noticed(live):
    node = live.node(start=False)
    jumps = []
    now = [node.now_ns()]

    class Clock:
        ros_time_is_active = False

        def now(self):
            return type("Time", (), {"nanoseconds": now[0]})

    watch = ClockWatch(node, pytest.fail, jumps.append)
    watch._clock = Clock()
    watch.check()
    now[0] += SECOND // 1000
    watch.check()
    assert jumps == []
    now[0] -= 5 * SECOND
    watch.check()
    assert [round(jump) for jump in jumps] == [-5]
    watch.close()
