"""The node as a process: what it says about wrong arguments, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-p", "engine.kind:=null"), "ready after"),
        (("-p", "engine.kind:=null", "-p", "autostart:=false"), ""),
    ],
    ids=["active", "unconfigured"],
)
def test_a_signal_ends_it_in_order(ros_domain, number, arguments, said):
    process = start("--params-file", str(RIG), *arguments)
    if said:
        output_until(process, said)
    time.sleep(0.5 if said else 4)
    code, rest, seconds = end(process, number)
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
        ((), "give at least cameras.<name>.topic"),
        (("--params-file", str(RIG), "-p", "wait_timeout:=long"), "wait_timeout is 'long': it must be a number from"),
        (("--params-file", str(RIG), "-p", "engine.knid:=null"), "did you mean engine.kind?"),
    ],
    ids=["no file", "no cameras", "wrong value", "unknown name"],
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
