"""`make bench`: what a tick costs beside the model, and the stages of the reference engine on a tiny checkpoint.

One JSON line per figure. The node runs as a process of its own with an engine that does nothing; its sensors are a
third process. CPU time stands beside that of a bare subscriber under the same load in the same run: these are shared
machines, and only the ratio says something.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import run_command

CAMERAS = {"cross_left": 0, "front_wide": 1, "cross_right": 2, "front_tele": 6}
CAMERA_RATE, ODOMETRY_RATE = 30.0, 100.0  # Hz
SETTLE = 5.0  # s of load before anything is counted
NODE = "/alpamayo"

RIG = {
    "/**": {
        "ros__parameters": {
            "anchor": "front_wide",
            "engine": {"kind": "null"},
            "cameras": {
                name: {"topic": f"/bench/{name}/image/compressed", "index": index} for name, index in CAMERAS.items()
            },
        }
    }
}


def report(figure: str, unit: str, **values: Any) -> None:
    """Print one figure."""
    rounded = {key: round(value, 3) if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"figure": figure, "unit": unit, **rounded}), flush=True)


def distribution(values: list[float]) -> dict[str, Any]:
    """Median, p99 and count."""
    return {"median": float(np.median(values)), "p99": float(np.percentile(values, 99)), "n": len(values)}


@dataclass
class Observed:
    """What the node's status messages said."""

    stages: dict[str, list[float]] = field(default_factory=dict)  # ms
    ages: list[float] = field(default_factory=list)  # ms
    last_t0: int = 0
    state: str = ""
    ticks: int = 0

    def take(self, status: Any, counting: bool) -> None:
        """Note a status message; the 1 Hz repetitions of a tick are passed over."""
        self.state = status.lifecycle_state
        t0 = status.header.stamp.sec * 1_000_000_000 + status.header.stamp.nanosec
        if not status.ok or t0 == self.last_t0:
            return
        self.last_t0 = t0
        if not counting:
            return
        self.ticks += 1
        self.ages.append(status.age_at_publication * 1e3)
        for name, ms in zip(status.stages, status.stage_ms, strict=True):
            self.stages.setdefault(name, []).append(ms)


def bench_node(seconds: float) -> None:
    """The node's overhead, CPU share and memory under the load of four 1080p cameras."""
    import psutil
    import rclpy
    import yaml
    from rclpy.executors import SingleThreadedExecutor

    from alpamayo_ros.msg import InferenceStatus

    observed = Observed()
    counting = False
    rclpy.init()
    listener = rclpy.create_node("bench")
    executor = SingleThreadedExecutor()
    executor.add_node(listener)
    listener.create_subscription(
        InferenceStatus, f"{NODE}/output/status", lambda status: observed.take(status, counting), 100
    )
    odometry = f"{NODE}/input/odometry"
    load = [sys.executable, "-m", "alpamayo_ros.tools.bench_load", "--odometry", odometry]
    for name in CAMERAS:
        load += ["--camera", f"/bench/{name}/image/compressed"]
    load += ["--seconds", str(seconds + SETTLE + 30), "--camera-rate", str(CAMERA_RATE)]
    load += ["--odometry-rate", str(ODOMETRY_RATE)]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            rig = Path(scratch) / "rig.yaml"
            rig.write_text(yaml.safe_dump(RIG))
            node_command = [sys.executable, "-m", "alpamayo_ros.ros.node", "--ros-args", "--params-file", str(rig)]
            with running(node_command) as node:
                spin_until(executor, lambda: observed.state == "active", 60, "the node to become active")
                with running(load):
                    spin_until(executor, lambda: observed.last_t0 > 0, 30, "the first tick")
                    spin_for(executor, SETTLE, "settling")
                    process, counting, before = psutil.Process(node.pid), True, cpu_seconds(node.pid)
                    started = time.monotonic()
                    spin_for(executor, seconds, "node under load")
                    node_share = (cpu_seconds(node.pid) - before) / (time.monotonic() - started)
                    resident = peak_resident(process.pid)
            bare_share = bench_bare_subscriber(load, odometry, seconds / 2)
    finally:
        executor.shutdown()
        listener.destroy_node()
        rclpy.shutdown()
    report("node: last needed message in to engine call", "ms", **distribution(observed.stages["assemble"]))
    report("node: engine result to message out", "ms", **distribution(observed.stages["publish"]))
    overhead = [a + b for a, b in zip(observed.stages["assemble"], observed.stages["publish"], strict=True)]
    report("node: overhead per tick", "ms", **distribution(overhead))
    report("node: age at publication", "ms", **distribution(observed.ages))
    report("node: rate", "Hz", value=observed.ticks / seconds)
    report(
        "node: CPU share of one core", "1", value=node_share, bare_subscriber=bare_share, ratio=node_share / bare_share
    )
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
        for _ in progress(range(round(seconds)), desc="bare subscriber under load", unit=" s"):
            time.sleep(1)
        share = (cpu_seconds(bare.pid) - before) / (time.monotonic() - started)
        bare.kill()
    return share


def bench_engine(ticks: int) -> None:
    """Stage times of the transformers engine on the tiny checkpoint: new frames at every tick, and none new."""
    from alpamayo_ros.core.types import EgoPose, Frame, Observation, SamplingOptions
    from alpamayo_ros.engine.factory import create_engine
    from alpamayo_ros.tools.bench_load import jpeg
    from alpamayo_ros.tools.make_checkpoint import main as make_checkpoint

    pictures = [jpeg(1080, 1920, seed) for seed in range(4)]
    history = np.stack([np.linspace(-15.0, 0.0, 16), np.zeros(16), np.zeros(16)], -1)
    pose = EgoPose(4, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
    rotation = np.tile(np.eye(3), (16, 1, 1))

    def observation(tick: int) -> Observation:
        frames = {
            camera: tuple(Frame(1 + 16 * t + camera, camera, 1 + t, pictures[i], "jpeg") for t in range(tick, tick + 4))
            for i, camera in enumerate(CAMERAS.values())
        }
        return Observation(1 + tick + 3, 0, frames, history, rotation, pose)

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / "tiny"
        with contextlib.redirect_stdout(sys.stderr):
            make_checkpoint(["--preset", "tiny", "--out", str(checkpoint)])
        engine = create_engine("transformers", str(checkpoint), device="cpu", max_cameras=4)
        engine.warm_up()
        options = SamplingOptions(num_samples=1, max_reasoning_tokens=20, temperature=0.0)
        engine.predict(observation(0), options)
        stages: dict[str, list[float]] = {}
        for tick in progress(range(1, ticks + 1), desc="transformers engine", unit=" ticks"):
            timings = engine.predict(observation(tick), options).timings
            for name, ms in {**timings.stages_ms, "total": timings.total_ms}.items():
                stages.setdefault(name, []).append(ms)
        engine.close()
    for name, values in stages.items():
        report(
            f"transformers engine, tiny checkpoint, CPU, 4 new 1080p JPEG frames: {name}", "ms", **distribution(values)
        )


def bench_engine_process(ticks: int) -> None:
    """What a process of its own adds to a prediction."""
    from alpamayo_ros.tools.bench_process import bench_process
    from alpamayo_ros.tools.make_checkpoint import main as make_checkpoint

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / "tiny"
        with contextlib.redirect_stdout(sys.stderr):
            make_checkpoint(["--preset", "tiny", "--out", str(checkpoint)])
        bench_process(report, ticks, list(CAMERAS.values()), str(checkpoint))


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
def running(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A child process that is gone when the block is left."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def spin_until(executor: Any, condition: Any, timeout: float, what: str) -> None:
    """Serve the listener until something holds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"error: waited {timeout:g} s for {what}; start the node by hand to see what it says")
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
        prog="python -m alpamayo_ros.tools.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="under load")
    parser.add_argument("--ticks", type=int, default=20, help="of the engine")
    parser.add_argument("--only", choices=["node", "engine", "process"], help="one part alone")
    options = parser.parse_args(arguments)
    os.environ.setdefault("FASTDDS_BUILTIN_TRANSPORTS", "LARGE_DATA")
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    if options.only in (None, "node"):
        bench_node(options.seconds)
    if options.only in (None, "engine"):
        bench_engine(options.ticks)
    if options.only in (None, "process"):
        bench_engine_process(options.ticks)
    return 0


if __name__ == "__main__":
    run_command(main)
