"""The node under the load of four 1080p JPEG cameras at 30 Hz and 100 Hz odometry: what a tick costs, and at what rate.

One JSON line per figure. The node runs as a process of its own with the engine that is asked for; its sensors are a
third process. Whatever follows `--` goes to the node's parameters, as `-p NAME:=VALUE`:

    python -m alpamayo_ros.tools.bench_node --seconds 300 -- -p engine.kind:=vllm -p engine.checkpoint:=DIR
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.evaluation.rig import parameter_argument
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.figures import report
from alpamayo_ros.tools.live_paths import child_process
from alpamayo_ros.tools.tick_figures import Observed, status_line

CAMERAS = {"cross_left": 0, "front_wide": 1, "cross_right": 2, "front_tele": 6}
CAMERA_RATE, ODOMETRY_RATE = 30.0, 100.0  # Hz
SETTLE, SETTLE_AGAIN = 5.0, 2.0  # s of load before anything is counted, at first and after a change
NULL_START, ENGINE_START = 60.0, 420.0  # s that a node may take until it is active
CHANGE_TIMEOUT = 5.0  # s
SHUTDOWN_TIMEOUT = 20.0  # s; a model of full size takes its time
NODE = "/alpamayo"
STAYS_UNCONFIGURED = "the node is unconfigured and does nothing"  # in its log

RIG = {
    "/**": {
        "ros__parameters": {
            "anchor": "front_wide",
            "cameras": {
                name: {"topic": f"/bench/{name}/image/compressed", "index": index} for name, index in CAMERAS.items()
            },
        }
    }
}


def bench_node(
    seconds: float,
    parameters: Sequence[str] = ("-p", "engine.kind:=null"),
    *,
    start: float = NULL_START,
    log: Path | None = None,
    statuses: TextIO | None = None,
    bare: bool = True,
    changes: Sequence[str] = (),
) -> None:
    """The node's overhead, CPU share and memory, the engine's stages, and the rate.

    Args:
        seconds: under load.
        parameters: of the node, as `-p NAME:=VALUE`.
        start: s that it may take until it is active.
        log: where the node's output goes; None: a file that is gone afterwards.
        statuses: gets a JSON line per counted tick.
        bare: also measure a bare subscriber of the same messages, for the ratio.
        changes: parameters as NAME:=VALUE that are changed while the node runs, one after the other; after each it is
            measured once more.

    Raises:
        EngineError: the node didn't become active, made no path, or refused a change.
    """
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from alpamayo_ros.msg import InferenceStatus

    observed, counting, change = Observed(), False, None

    def listen(status: Any) -> None:
        if observed.take(status, counting) and statuses is not None:
            statuses.write(status_line(status, change) + "\n")

    rclpy.init()
    listener = rclpy.create_node("bench")
    executor = SingleThreadedExecutor()
    executor.add_node(listener)
    listener.create_subscription(InferenceStatus, f"{NODE}/output/status", listen, 100)
    odometry = f"{NODE}/input/odometry"
    load = [sys.executable, "-m", "alpamayo_ros.tools.bench_load", "--odometry", odometry]
    for name in CAMERAS:
        load += ["--camera", f"/bench/{name}/image/compressed"]
    load += ["--seconds", str((seconds + SETTLE) * (1 + len(changes)) + 30), "--camera-rate", str(CAMERA_RATE)]
    load += ["--odometry-rate", str(ODOMETRY_RATE)]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            rig = Path(scratch) / "rig.yaml"
            rig.write_text(json.dumps(RIG))  # which is YAML
            command = [sys.executable, "-m", "alpamayo_ros.ros.node", "--ros-args", "--params-file", str(rig)]
            said = log or Path(scratch) / "node.log"
            with running([*command, *parameters], said) as node:
                spin_until(executor, lambda: is_active(observed, node, said), start, "become active", said)
                with running(load):
                    spin_until(executor, lambda: observed.last_t0 > 0, 30, "publish its first path", said)
                    for change in (None, *changes):
                        if change is not None:
                            change_parameter(listener, executor, change)
                            report("changed", "1", parameter=change)
                        spin_for(executor, SETTLE if change is None else SETTLE_AGAIN, "settling")
                        observed, counting, before = observed.anew(), True, cpu_seconds(node.pid)
                        started = time.monotonic()
                        spin_for(executor, seconds, "node under load")
                        passed, counting = time.monotonic() - started, False
                        node_share = (cpu_seconds(node.pid) - before) / passed
                        if not observed.ticks:
                            skipped = observed.skipped
                            raise EngineError(f"the node published no path in {seconds:g} s; skipped: {skipped}")
                        observed.report(passed)
                    resident = peak_resident(node.pid)
            bare_share = bench_bare_subscriber(load, odometry, min(seconds / 2, 15)) if bare else None
    finally:
        executor.shutdown()
        listener.destroy_node()
        rclpy.shutdown()
    beside = {} if bare_share is None else {"bare_subscriber": bare_share, "ratio": node_share / bare_share}
    report("node: CPU share of one core", "1", value=node_share, **beside)
    report("node: peak resident memory", "MB", value=resident / 1e6)


def bench_bare_subscriber(load: list[str], odometry: str, seconds: float) -> float:
    """CPU share of a process that only receives the same messages: the least that Python can do with them."""
    program = (
        "import rclpy\n"
        "from nav_msgs.msg import Odometry\n"
        "from sensor_msgs.msg import CompressedImage\n"
        "from rclpy.qos import qos_profile_sensor_data as qos\n"
        "rclpy.init(); node = rclpy.create_node('bare')\n"
        f"for name in {list(CAMERAS)!r}:\n"
        "    topic = f'/bench/{name}/image/compressed'\n"
        "    node.create_subscription(CompressedImage, topic, lambda message: None, qos)\n"
        f"node.create_subscription(Odometry, {odometry!r}, lambda message: None, qos)\n"
        "rclpy.spin(node)\n"
    )
    with running([sys.executable, "-c", program]) as bare, running(load):
        time.sleep(SETTLE)
        before, started = cpu_seconds(bare.pid), time.monotonic()
        for _ in progress(range(max(1, round(seconds))), desc="bare subscriber under load", unit=" s"):
            time.sleep(1)
        share = (cpu_seconds(bare.pid) - before) / (time.monotonic() - started)
        bare.kill()
    return share


def change_parameter(listener: Any, executor: Any, change: str) -> None:
    """Set a parameter of the running node, given as NAME:=VALUE.

    Raises:
        EngineError: it is refused, or there is no answer.
    """
    from rclpy.parameter import Parameter
    from rclpy.parameter_client import AsyncParameterClient

    name, value = parameter_argument(change)
    future = AsyncParameterClient(listener, NODE).set_parameters([Parameter(name, value=value)])
    executor.spin_until_future_complete(future, timeout_sec=CHANGE_TIMEOUT)
    answer = future.result() if future.done() else None
    if answer is None:
        raise EngineError(f"no answer within {CHANGE_TIMEOUT:g} s to {change}")
    if not answer.results[0].successful:
        raise EngineError(f"{change} is refused: {answer.results[0].reason}")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    import psutil

    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def peak_resident(pid: int) -> int:
    """The most memory that a process has held, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no VmHWM")


@contextlib.contextmanager
def running(command: Sequence[str], log: Path | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that is gone when the block is left; its output goes to a file, if any."""
    with open(log or os.devnull, "wb") as output, child_process(list(command), output, SHUTDOWN_TIMEOUT) as process:
        yield process


def is_active(observed: Observed, node: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether the node has begun.

    Raises:
        EngineError: it has ended, or stays unconfigured.
    """
    if node.poll() is not None or STAYS_UNCONFIGURED in log.read_text(errors="replace"):
        raise EngineError(f"the node can't start:\n{last_lines(log)}")
    return observed.state == "active"


def last_lines(log: Path) -> str:
    """The end of the node's output."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-10:])


def spin_until(executor: Any, condition: Callable[[], bool], timeout: float, what: str, log: Path) -> None:
    """Serve the listener until something holds.

    Raises:
        EngineError: it took too long.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise EngineError(f"waited {timeout:g} s for the node to {what}; it said:\n{last_lines(log)}")
        executor.spin_once(timeout_sec=0.1)


def spin_for(executor: Any, seconds: float, what: str) -> None:
    """Serve the listener for a while."""
    started = time.monotonic()
    with progress(total=round(seconds), desc=what, unit=" s") as bar:
        while (passed := time.monotonic() - started) < seconds:
            executor.spin_once(timeout_sec=0.1)
            bar.update(int(passed) - bar.n)


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.bench_node",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="under load")
    parser.add_argument("--start", type=float, default=ENGINE_START, help="s that loading the engine may take")
    parser.add_argument("--log", type=Path, help="file for the node's output")
    parser.add_argument("--statuses", type=Path, help="file for a JSON line per tick")
    parser.add_argument("--no-bare", action="store_true", help="leave out the bare subscriber, 5 to 20 s")
    parser.add_argument(
        "--then",
        action="append",
        default=[],
        metavar="NAME:=VALUE",
        help="change this parameter while the node runs, and measure again; may be repeated",
    )
    parser.add_argument("parameters", nargs="*", metavar="-- -p NAME:=VALUE", help="of the node")
    options = parser.parse_args(arguments)
    use_local_transports()

    def work() -> int:
        with contextlib.ExitStack() as stack:
            statuses = stack.enter_context(options.statuses.open("w")) if options.statuses else None
            parameters = options.parameters or ("-p", "engine.kind:=null")
            bench_node(
                options.seconds,
                parameters,
                start=options.start,
                log=options.log,
                statuses=statuses,
                bare=not options.no_bare,
                changes=options.then,
            )
        return 0

    return guarded(work)


def use_local_transports() -> None:
    """What large messages within one machine need, unless the environment says otherwise."""
    os.environ.setdefault("FASTDDS_BUILTIN_TRANSPORTS", "LARGE_DATA")
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")


if __name__ == "__main__":
    run_command(main)
