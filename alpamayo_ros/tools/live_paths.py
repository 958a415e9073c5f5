"""Drive a node for real: start it as a process, play a bag to it from another, and collect what crosses DDS."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alpamayo_ros.core.types import AlpamayoError, Array
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.rig import load_rig
from alpamayo_ros.progress import progress

NODE = "alpamayo"
START_TIMEOUT = 120.0  # s for the node to load its engine and become active
SHUTDOWN_TIMEOUT = 10.0
SLOWEST = 0.1  # times real time: slower than that a short drive would take minutes


@dataclass(frozen=True, eq=False)
class LivePath:
    """A nav_msgs/Path as it arrived."""

    t0_ns: int
    xyz: Array  # [64, 3] m in the path's frame
    stamps_ns: tuple[int, ...]  # of its poses


def drive_node(
    bag: Path,
    rig: Path,
    checkpoint: Path | None,
    *,
    rate_hz: float,
    samples: int,
    log: Path,
    play_rate: float = 1.0,
    duration: float | None = None,
    delay: float = 1.0,
) -> list[LivePath]:
    """Play `bag` to a node in simulated time, and return the paths that it published.

    Args:
        bag: with the topics that `rig` names.
        rig: the node's parameter file.
        checkpoint: the transformers engine's; None for the null engine.
        rate_hz: at most so many ticks a second.
        samples: trajectories per tick.
        log: where the output of both processes goes.
        play_rate: times real time; below 1 for an engine that is too slow for this machine.
        duration: s of the bag to play; None plays until its last camera frame.
        delay: s before the bag begins, for others who listen to it.

    Raises:
        AlpamayoError: the node did not start, or no path crossed.
    """
    import rclpy
    from nav_msgs.msg import Path as PathMessage

    from alpamayo_ros.msg import InferenceStatus

    parameters = {
        **({} if checkpoint is None else {"engine.checkpoint": str(checkpoint)}),
        "rate_hz": f"{rate_hz:.6f}",
        "sampling.num_samples": str(samples),
    }
    node_command = patient_node(rig, parameters)
    inputs = len(load_rig(rig).cameras) + 1  # the cameras and the odometry
    play_command = [sys.executable, "-m", "alpamayo_ros.tools.play_bag", str(bag), "--clock"]
    play_command += ["--wait-for-subscribers", str(inputs), "--rate", f"{play_rate:.4f}"]
    play_command += ["--delay", f"{delay:.1f}"]
    play_command += ["--duration", f"{duration if duration is not None else _until_last_frame(bag):.3f}"]

    paths: list[LivePath] = []
    state = ""
    bar = progress(desc="the node loads its engine", unit=" paths")

    def on_path(path: PathMessage) -> None:
        paths.append(_received(path))
        bar.update()

    def on_status(status: InferenceStatus) -> None:
        nonlocal state
        state = status.lifecycle_state

    context = rclpy.Context()
    rclpy.init(context=context)
    listener = rclpy.create_node("live_paths", context=context)
    executor = rclpy.executors.SingleThreadedExecutor(context=context)
    executor.add_node(listener)
    listener.create_subscription(PathMessage, f"/{NODE}/output/path", on_path, 10)
    listener.create_subscription(InferenceStatus, f"/{NODE}/output/status", on_status, 10)
    try:
        with log.open("w") as output, child_process(node_command, output) as node:
            deadline = time.monotonic() + START_TIMEOUT
            while state != "active":
                executor.spin_once(timeout_sec=0.2)
                if node.poll() is not None or time.monotonic() > deadline:
                    raise AlpamayoError(f"the node did not become active (state '{state}'); its log is {log}")
            bar.set_description("the bag plays")
            with child_process(play_command, output) as player:
                while player.poll() is None:
                    executor.spin_once(timeout_sec=0.1)
                if player.returncode:
                    raise AlpamayoError(f"play_bag ended with status {player.returncode}; see {log}")
            drained = time.monotonic() + 2.0
            while time.monotonic() < drained:
                executor.spin_once(timeout_sec=0.1)
    finally:
        bar.close()
        executor.shutdown()
        listener.destroy_node()
        rclpy.shutdown(context=context)
    if not paths:
        raise AlpamayoError(f"no path crossed DDS; the node's log is {log}")
    return paths


def patient_node(rig: Path, parameters: Mapping[str, str]) -> list[str]:
    """The command of a node in simulated time that loses nothing, on a slow machine too.

    Args:
        rig: its parameter file.
        parameters: what else to set.
    """
    patient = {
        "use_sim_time": "true",
        # messages, the clock and paths may be late, and still count
        "future_tolerance": "5.0",
        "max_input_age": "30.0",
        "max_result_age": "30.0",
        "odometry.reliability": "reliable",
        "odometry.depth": "100",
    }
    for camera in load_rig(rig).cameras:
        patient[f"cameras.{camera.name}.reliability"] = "reliable"
        patient[f"cameras.{camera.name}.depth"] = "100"
    command = [sys.executable, "-m", "alpamayo_ros.ros.node", "--ros-args", "--params-file", str(rig)]
    for name, value in {**patient, **parameters}.items():
        command += ["-p", f"{name}:={value}"]
    return command


def affordable_rate(report: Path, stride: float) -> float:
    """How fast a bag may be played so that the engine keeps up, with room to spare, as it was measured offline.

    Args:
        report: the evaluator's report.json.
        stride: s between ticks.

    Returns:
        Times real time, from SLOWEST to 1.
    """
    timings = json.loads(report.read_text())["timings_ms"]
    usual_ms = timings["engine_total"]["median"] + timings["ahead_of_tick"]["median"]
    return min(1.0, max(SLOWEST, stride / (4 * usual_ms * 1e-3)))


@dataclass(frozen=True)
class Comparison:
    """Live paths beside those of the offline evaluation."""

    difference: float  # m, the largest over the poses of all ticks that both have
    missing_live: tuple[int, ...]  # t0 (ns) of offline ticks without a live path


def compare_with_bag(paths: list[LivePath], result_bag: Path) -> Comparison:
    """Compare live paths with those in an evaluator's result bag.

    Raises:
        AlpamayoError: a live path's t0 or stamps are not among the offline ones.
    """
    with BagReader(result_bag) as reader:
        messages = reader.messages([f"/{NODE}/output/path"])
        offline = {path.t0_ns: path for path in (_received(message.message) for message in messages)}
    largest = 0.0
    for path in paths:
        if path.t0_ns not in offline:
            raise AlpamayoError(f"a path for t0 {path.t0_ns} ns came live, but not from the offline evaluation")
        expected = offline[path.t0_ns]
        if path.stamps_ns != expected.stamps_ns:
            raise AlpamayoError(f"the stamps of the path for t0 {path.t0_ns} ns differ live and offline")
        largest = max(largest, float(np.abs(path.xyz - expected.xyz).max()))
    return Comparison(largest, tuple(sorted(offline.keys() - {path.t0_ns for path in paths})))


def _received(path: object) -> LivePath:
    """From rclpy's or rosbags' Path."""
    poses = path.poses  # type: ignore[attr-defined]
    xyz = np.array([[p.pose.position.x, p.pose.position.y, p.pose.position.z] for p in poses]).reshape(-1, 3)
    return LivePath(_ns(path.header.stamp), xyz, tuple(_ns(p.header.stamp) for p in poses))  # type: ignore[attr-defined]


def _ns(stamp: object) -> int:
    return stamp.sec * 1_000_000_000 + stamp.nanosec  # type: ignore[attr-defined]


def _until_last_frame(bag: Path) -> float:
    """Seconds from a bag's start to a little after its last camera frame."""
    with BagReader(bag) as reader:
        cameras = [topic for topic, kind in reader.topics.items() if kind.endswith("Image")]
        last = max(message.receive_ns for message in reader.messages(cameras))
        return (last - reader.start_ns) * 1e-9 + 0.5


@contextlib.contextmanager
def child_process(
    command: list[str], output: object, shutdown_timeout: float = SHUTDOWN_TIMEOUT
) -> Iterator[subprocess.Popen[bytes]]:
    """A child that is gone when the block is left: interrupted, and killed after `shutdown_timeout` s."""
    process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(shutdown_timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
