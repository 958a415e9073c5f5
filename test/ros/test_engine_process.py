"""A node whose engine lives in a process of its own, over DDS, when that process is killed, stopped or hangs."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from live import STEP_NS, wait_until
from processes import is_gone
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from tiny_checkpoint import write_tiny_checkpoint

from alpamayo_ros.core.incoming import stamp_ns
from alpamayo_ros.engine.process.client import ProcessEngine

ROOT = Path(__file__).parents[2]
BACK = 60.0  # s within which a path has to come again on a busy machine; loading the tiny engine takes most of it


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture
def tiny(checkpoint):
    """Parameters of the tiny engine in a process of its own."""
    return {
        "engine.kind": "transformers",
        "engine.process": "subprocess",
        "engine.checkpoint": str(checkpoint),
        "engine.device": "cpu",
        "sampling.max_reasoning_tokens": 4,
        "max_result_age": 60.0,
        "max_input_age": 60.0,
        "max_odometry_age": 60.0,
    }


def engine_pid(node):
    return node._configured.engine.health.pid


def path_at(driver, t0, timeout=BACK):
    return driver.wait_for("path", lambda path: stamp_ns(path.header.stamp) == t0, timeout)


def assert_valid(path, t0, driver):
    assert path.header.frame_id == "odom"
    assert [stamp_ns(pose.header.stamp) for pose in path.poses] == [t0 + (i + 1) * STEP_NS for i in range(64)]
    positions = np.array([[pose.pose.position.x, pose.pose.position.y] for pose in path.poses])
    assert np.isfinite(positions).all()
    assert positions[0, 0] == pytest.approx(driver.x(t0) + 0.1 * driver.speed, abs=0.5)


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGSTOP, "was suspended (SIGSTOP)")],
    ids=["kill", "stop"],
)
def test_it_says_at_once_that_its_engine_is_gone_and_drives_again(live, tiny, number, said):
    node = live.node(make_engine=None, parameters=tiny)
    driver = live.driver()
    assert_valid(path_at(driver, t0 := driver.play()), t0, driver)
    first = engine_pid(node)

    driver.received["status"].clear()
    # every tick takes a while from now on, so that one is under way
    node.set_parameters([Parameter("sampling.flow_steps", value=200), Parameter("sampling.num_samples", value=64)])
    driver.play(seconds=0.3)
    wait_until(lambda: node._configured.drive.tick_report().busy_for > 0, "a tick under way")
    os.kill(first, number)
    killed = time.monotonic()
    lost = driver.wait_for_skip("engine_error", BACK)
    # at once when it is dead; a process that is stopped may be one that goes on
    assert time.monotonic() - killed < 8
    assert f"the engine process {first} {said}" in lost.detail
    assert "while predicting" in lost.detail
    driver.play(seconds=0.3)
    status = driver.wait_for_skip("engine_not_ready", BACK)
    assert said in status.detail
    assert said in driver.wait_for("status", lambda status: said in status.engine, BACK).engine
    assert driver.wait_for_diagnostic("engine", "starting it anew, attempt 1 of 5", BACK).level == b"\x02"

    node.set_parameters([Parameter("sampling.flow_steps", value=0), Parameter("sampling.num_samples", value=2)])
    wait_until(lambda: engine_pid(node) not in (0, first), "a new engine process", BACK)
    assert_valid(path_at(driver, t0 := driver.play()), t0, driver)
    assert time.monotonic() - killed < BACK
    values = lambda: {pair.key: pair.value for pair in driver.diagnostics["alpamayo: engine"].values}  # noqa: E731
    wait_until(lambda: values().get("process_id") == str(engine_pid(node)), lambda: f"the new process in {values()}")
    assert values()["restarts"] == "1"
    wait_until(lambda: is_gone(first), "the old process to be gone")


def test_cleanup_ends_an_engine_that_hangs_without_waiting_for_it(live, tiny):
    class Hanging(ProcessEngine):
        def predict(self, observation, options):
            return super().predict(observation, replace(options, reasoning="off", flow_steps=10**9))

    def make_engine(settings):
        options = {"device": "cpu", "max_cameras": 1}
        return Hanging("transformers", settings.engine.checkpoint, options)

    node = live.node(make_engine=make_engine, parameters=tiny)
    driver = live.driver()
    pid = engine_pid(node)
    driver.play()
    wait_until(lambda: node._configured.drive.tick_report().busy_for > 0, "a tick under way")
    started = time.monotonic()
    assert node.trigger_deactivate() == TransitionCallbackReturn.SUCCESS
    assert node.trigger_cleanup() == TransitionCallbackReturn.SUCCESS
    assert time.monotonic() - started < 10
    assert is_gone(pid)
    assert node.state == "unconfigured"
    assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS


def test_an_interpreter_that_is_none_leaves_the_node_unconfigured_with_the_reason(live, tiny):
    node = live.node(make_engine=None, start=False, parameters={**tiny, "engine.python": "/no/python"})
    driver = live.driver(connect=False)
    assert node.trigger_configure() == TransitionCallbackReturn.FAILURE
    driver.wait_for_diagnostic("engine", "engine.python is '/no/python', which can't be started")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -9)])
def test_the_engine_process_ends_with_the_nodes(ros_domain, number, code):
    command = [sys.executable, "-u", "-m", "alpamayo_ros.ros.node", "--ros-args", "--params-file"]
    command += [str(ROOT / "config" / "front_only.yaml"), "-p", "engine.kind:=null", "-p", "engine.process:=subprocess"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    node = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT
    )
    said = []
    for line in node.stdout:
        said.append(line)
        if "ready after" in line:
            break
    (engine,) = psutil.Process(node.pid).children()
    started = time.monotonic()
    node.send_signal(number)
    rest, _ = node.communicate(timeout=15)
    assert time.monotonic() - started < 5
    assert (node.returncode, "Traceback" in rest) == (code, False), "".join(said) + rest
    wait_until(lambda: is_gone(engine.pid), "the engine process to be gone")
