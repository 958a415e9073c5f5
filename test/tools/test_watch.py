"""Watching a node from another process, over DDS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="needs rclpy: make setup, or source a ROS 2 installation")

from live import Live

ROOT = Path(__file__).parents[2]


@pytest.fixture
def live(ros_domain: int) -> Iterator[Live]:
    running = Live(ros_domain)
    yield running
    running.close()


def start_watch(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "alpamayo_ros.tools.watch", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_it_prints_a_line_per_tick_with_the_end_of_the_path_or_the_reason(live: Live) -> None:
    live.node()
    driver = live.driver(speed=10.0)
    watch = start_watch()
    assert watch.stdout is not None
    assert watch.stdout.readline() == "the node is active: null on cpu: constant speed\n"
    skipped = watch.stdout.readline()  # once a second, since no camera sends
    assert 'no path: waiting_for_camera {"cameras": ["front_wide"]}' in skipped
    t0 = driver.play(seconds=4.0)
    wanted = f"{t0 // 10**9}.{t0 // 10**6 % 1000:03d}  path to x "
    line = next(line for line in watch.stdout if line.startswith(wanted))
    x = driver.x(t0) + 64
    assert line == f'{wanted}{x:.1f}, y 0.0 m in odom, 10.0 to 10.0 m/s: "Keep the speed."\n'
    watch.send_signal(signal.SIGINT)
    _, told = watch.communicate(timeout=20)
    assert (watch.returncode, told) == (0, "")


def test_it_ends_after_the_ticks_that_were_asked_for(live: Live) -> None:
    live.node()
    live.driver(connect=False)
    out, _ = start_watch("--ticks", "1").communicate(timeout=30)
    assert len(out.splitlines()) == 2  # the state, and one tick


def test_it_says_when_there_is_no_such_node(ros_domain: int) -> None:
    watch = start_watch("--node", "/somebody")
    assert watch.stderr is not None
    assert watch.stderr.readline().startswith("nothing from /somebody yet: is it running?")
    watch.send_signal(signal.SIGTERM)
    watch.communicate(timeout=20)
    assert watch.returncode == 0
