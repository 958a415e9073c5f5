"""The node as a process: what it says about wrong arguments, and how it ends."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from live import wait_until

from alpamayo_ros.ros.process import shared_memory_fault

ROOT = Path(__file__).parents[2]
RIG = ROOT / "config" / "front_only.yaml"
HANGING_NODE = """
import sys, time
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros.process import run

class Hanging(NullEngine):
    def warm_up(self):
        self.hang("loading")

    def predict(self, observation, options):
        self.hang("predicting")

    def hang(self, stage):
        print(stage, flush=True)
        if stage == sys.argv[1]:
            time.sleep(60)

sys.exit(run(sys.argv[:1] + sys.argv[2:], lambda settings: Hanging()))
"""


def start(*arguments, program=("-m", "alpamayo_ros.ros.node")):
    command = [sys.executable, "-u", *program, "--ros-args", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def output_until(process, text):
    """Everything printed until that text, which has to come."""
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return "".join(seen)
    raise AssertionError(f"{text!r} never came:\n{''.join(seen)}")


def end(process, number):
    """Send a signal; returns the exit code, what was printed since, and the seconds that it took."""
    started = time.monotonic()
    process.send_signal(number)
    rest, _ = process.communicate(timeout=15)
    return process.returncode, rest, time.monotonic() - started


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-p", "engine.kind:=null"), "ready after"),
        (("-p", "engine.kind:=null", "-p", "autostart:=false"), ""),
    ],
    ids=["active", "unconfigured"],
)
def test_a_signal_ends_it_in_order(ros_domain, live, number, arguments, said):
    process = start("--params-file", str(RIG), *arguments)
    if said:
        output_until(process, said)
    else:
        driver = live.driver(connect=False)
        driver.wait_for("status", lambda status: status.lifecycle_state == "unconfigured", timeout=30.0)
    time.sleep(0.5)
    code, rest, seconds = end(process, number)
    assert (code, "Traceback" in rest) == (0, False), rest
    assert seconds < 5


def test_an_engine_that_hangs_is_cut_off_also_where_the_process_has_no_streams(ros_domain, tmp_path):
    """As a service may be started: what is to be flushed isn't there."""
    said = tmp_path / "said"
    program = HANGING_NODE.replace("print(stage, flush=True)", f"open({str(said)!r}, 'w').write(stage)")
    node = [sys.executable, "-c", program, "loading", "--ros-args", "--params-file", str(RIG)]
    command = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", *node]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    wait_until(said.exists, "the engine to load", timeout=30.0)
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0


def test_an_engine_that_hangs_is_cut_off_also_where_nobody_reads_what_it_says_any_more(ros_domain, tmp_path):
    """As with `| head`: what is to be flushed can't be."""
    said = tmp_path / "said"
    program = HANGING_NODE.replace("print(stage, flush=True)", f"print(stage); open({str(said)!r}, 'w').write(stage)")
    command = [sys.executable, "-c", program, "loading", "--ros-args", "--params-file", str(RIG)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    wait_until(said.exists, "the engine to load", timeout=30.0)
    process.stdout.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "transitions",
    [
        [("configure", "inactive")],
        [("configure", "inactive"), ("activate", "active"), ("deactivate", "inactive")],
    ],
    ids=["configured", "deactivated"],
)
def test_a_signal_ends_it_in_order_when_it_is_inactive(ros_domain, live, number, transitions):
    process = start("--params-file", str(RIG), "-p", "engine.kind:=null", "-p", "autostart:=false")
    driver = live.driver(connect=False)
    client = driver.create_client(ChangeState, "/alpamayo/change_state")
    assert client.wait_for_service(30.0)
    for label, state in transitions:
        driver.received["status"].clear()
        for _ in range(6):  # what is sent in the moment of discovery may get lost
            client.call_async(ChangeState.Request(transition=Transition(label=label)))
            with contextlib.suppress(AssertionError):
                driver.wait_for("status", lambda status, state=state: status.lifecycle_state == state, timeout=5.0)
                break
        assert driver.received["status"][-1].lifecycle_state == state
    code, rest, seconds = end(process, number)
    assert (code, "Traceback" in rest) == (0, False), rest
    assert seconds < 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_while_images_rush_in(ros_domain, live, number):
    process = start("--params-file", str(RIG), "-p", "engine.kind:=null")
    output_until(process, "ready after")
    driver = live.driver(topics={"front_wide": "/camera/image_raw/compressed"}, odometry="/odometry")
    rushing = threading.Event()

    def rush():
        while not rushing.wait(0.002):
            driver.send_frame(time.time_ns(), data=bytes(200_000))
            driver.send_odometry(time.time_ns())

    sender = threading.Thread(target=rush)
    sender.start()
    try:
        driver.wait_for("status", lambda status: status.cameras and status.cameras[0].received > 20, timeout=20.0)
        code, rest, seconds = end(process, number)
    finally:
        rushing.set()
        sender.join()
    assert (code, "Traceback" in rest) == (0, False), rest
    assert seconds < 5


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("stage", ["loading", "predicting"])
def test_a_signal_ends_it_within_five_seconds_although_the_engine_hangs(ros_domain, live, number, stage):
    process = start("--params-file", str(RIG), program=("-c", HANGING_NODE, stage))
    if stage == "predicting":
        output_until(process, "ready after")
        driver = live.driver(topics={"front_wide": "/camera/image_raw/compressed"}, odometry="/odometry")
        driver.play_in_real_time(seconds=2.5)
    output_until(process, stage)
    code, rest, seconds = end(process, number)
    assert (code, "Traceback" in rest) == (0, False), rest
    assert seconds < 5


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--params-file", "/nowhere/rig.yaml"), "/nowhere/rig.yaml"),
        ((), "none was given for /alpamayo: start with --ros-args --params-file RIG.yaml"),
        (("-p", "rate_hz:=5"), "give at least cameras.<name>.topic"),
        (("--params-file", str(RIG), "-p", "rate_hz:=fast"), "rate_hz is 'fast': it must be a number from"),
        (("--params-file", str(RIG), "-p", "sampling.num_samples:=1.5"), "sampling.num_samples is 1.5: it must be an"),
        (("--params-file", str(RIG), "--", "--params-file"), "--params-file is no argument of this node"),
        (("--nonsense",), "ROS knows no argument ['--nonsense']"),
        (("--params-file", str(RIG), "-p", "wait_timeout:=long"), "wait_timeout is 'long': it must be a number from"),
        (("--params-file", str(RIG), "-p", "engine.knid:=null"), "did you mean engine.kind?"),
    ],
    ids=[
        "no file",
        "nothing",
        "no cameras",
        "wrong type",
        "no integer",
        "not behind --ros-args",
        "unknown argument",
        "wrong value",
        "unknown name",
    ],
)
def test_wrong_arguments_are_one_error_and_exit_code_2(ros_domain, arguments, told):
    process = start(*arguments)
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2, said
    assert told in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "text",
    ["a:\n - b: [", "/**:\n  ros__parameters:\n    odometry:\n      child_to_base: []\n", "just words"],
    ids=["syntax", "empty list", "no parameters"],
)
def test_a_parameter_file_that_is_wrong_is_one_error_and_exit_code_2(ros_domain, tmp_path, text):
    file = tmp_path / "rig.yaml"
    file.write_text(text)
    process = start("--params-file", str(file))
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2, said
    assert "error: " in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-p", "cameras.front_wide.topic:=a b"), "cameras.front_wide.topic is 'a b', which is no name of a topic"),
        (("-r", "camera/image_raw/compressed:=/odometry"), "odometry.topic leads to /odometry"),
    ],
    ids=["no name", "remapped onto another"],
)
def test_topics_that_can_not_be_are_named_before_the_engine_is_loaded(ros_domain, arguments, told):
    process = start("--params-file", str(RIG), "-p", "engine.checkpoint:=/nowhere", *arguments)
    try:
        assert told in output_until(process, "on_configure failed")
    finally:
        code, rest, _ = end(process, signal.SIGINT)
    assert (code, "Traceback" in rest) == (0, False), rest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_imports_is_no_traceback(tmp_path, number):
    (tmp_path / "rclpy.py").write_text(f"import os, time\nos.kill(os.getpid(), {int(number)})\ntime.sleep(20)\n")
    command = [sys.executable, "-m", "alpamayo_ros.ros.node"]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "\ninterrupted\n")


def test_help_says_how_to_start_it():
    ended = subprocess.run(
        [sys.executable, "-m", "alpamayo_ros.ros.node", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "--ros-args: --params-file RIG.yaml" in ended.stdout


def test_a_domain_that_is_no_number_is_one_error_and_exit_code_2():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ROS_DOMAIN_ID": "abc"}
    command = [sys.executable, "-m", "alpamayo_ros.ros.node", "--ros-args", "--params-file", str(RIG)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2, ended.stderr
    assert "error: " in ended.stderr
    assert "Traceback" not in ended.stderr


def test_full_shared_memory_is_named_before_it_ends_the_process_by_a_bus_error():
    assert os.statvfs("/proc").f_bavail == 0  # a file system without room
    assert "/proc has 0 bytes left, expected at least 1048576" in shared_memory_fault("/proc")
    assert shared_memory_fault("/nowhere") is None


def test_a_checkpoint_that_is_not_there_leaves_the_node_alive_with_the_reason(ros_domain):
    process = start(
        "--params-file", str(RIG), "-p", "engine.checkpoint:=/nowhere/checkpoint", "-p", "engine.device:=cpu"
    )
    try:
        assert "/nowhere/checkpoint" in output_until(process, "on_configure failed")
        output_until(process, "correct what is said above and start it again")
        time.sleep(0.5)
        assert process.poll() is None
    finally:
        code, rest, _ = end(process, signal.SIGINT)
    assert (code, "Traceback" in rest) == (0, False), rest


TALKING_ENGINE = """
import logging, sys
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.ros.process import run

class Talking(NullEngine):
    def warm_up(self):
        logging.getLogger("alpamayo_ros.engine.somewhere").info("something to know")
        logging.getLogger("alpamayo_ros.engine.somewhere").warning("something to mind")
        logging.getLogger("another_package").warning("something of theirs")

sys.exit(run(None, lambda settings: Talking()))
"""


def test_every_record_of_python_is_in_the_log_once(ros_domain):
    process = start("--params-file", str(RIG), program=("-c", TALKING_ENGINE))
    seen = output_until(process, "ready after")
    end(process, signal.SIGINT)
    for text in ("something to know", "something to mind", "something of theirs"):
        assert seen.count(text) == 1, seen
    assert "ready after" in seen
    assert "null engine with constant speed (null, no parameters, float64) on cpu" in seen
