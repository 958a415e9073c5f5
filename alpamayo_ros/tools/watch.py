"""Prints a line for every tick of a running node: where its path ends and why, or why there is none.

  1700000002.100  path to x 64.0, y 0.3 m in odom, 10.0 to 9.7 m/s: "Keep the lane."
  1700000002.600  no path: camera_stale {"age_s": [0.71], "cameras": ["front_wide"], "max_input_age": 0.5}

For machines without `ros2 topic echo`. Every topic that the node publishes is in docs/node.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from typing import TYPE_CHECKING

from alpamayo_ros.stop_signals import stop_on_signals
from alpamayo_ros.tools.command import node_name, run_command

if TYPE_CHECKING:
    from alpamayo_ros.msg import InferenceStatus, Reasoning, Trajectory

SILENCE = 5.0  # s without a word of the node before that is said
HELD = 10  # ticks that wait for their other half


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.watch",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--node", type=node_name, default="/alpamayo", help="its full name (default /alpamayo)")
    parser.add_argument("--ticks", type=int, metavar="N", help="end after so many lines (default: when interrupted)")
    return parser


class Watch:
    """Puts the node's messages together, by t0, and prints a line per tick."""

    def __init__(self) -> None:
        self.lines = 0
        self.heard = False
        self._trajectories: dict[str, Trajectory] = {}
        self._reasoning: dict[str, Reasoning] = {}
        self._skipped = 0
        self._state = ""

    def on_trajectory(self, trajectory: Trajectory) -> None:
        """A path, or the word that none comes any more, which the status has too."""
        if trajectory.points:
            t0 = _time(trajectory)
            _hold(self._trajectories, t0, trajectory)
            self._print_path(t0)

    def on_reasoning(self, reasoning: Reasoning) -> None:
        """Its words."""
        t0 = _time(reasoning)
        _hold(self._reasoning, t0, reasoning)
        self._print_path(t0)

    def on_status(self, status: InferenceStatus) -> None:
        """What the newest tick came to; the same again once a second."""
        state = f"the node is {status.lifecycle_state}: {status.engine}"
        if state != self._state:
            print(state, flush=True)
        if self.heard and status.skip_reason and status.ticks_skipped > self._skipped:
            numbers = json.loads(status.detail).get(status.skip_reason, {})
            self._print(f"{_time(status)}  no path: {status.skip_reason} {json.dumps(numbers) if numbers else ''}")
        self._state, self._skipped, self.heard = state, status.ticks_skipped, True

    def _print_path(self, t0: str) -> None:
        if t0 not in self._trajectories or t0 not in self._reasoning:
            return
        trajectory, text = self._trajectories.pop(t0), self._reasoning.pop(t0).text
        last = trajectory.points[-1]
        end = f"x {last.pose.position.x:.1f}, y {last.pose.position.y:.1f} m in {trajectory.header.frame_id}"
        self._print(f'{t0}  path to {end}, {trajectory.initial_speed:.1f} to {last.speed:.1f} m/s: "{text}"')

    def _print(self, line: str) -> None:
        self.lines += 1
        print(line.rstrip(), flush=True)


def _time(message: InferenceStatus | Reasoning | Trajectory) -> str:
    stamp = message.header.stamp
    return f"{stamp.sec}.{stamp.nanosec // 1_000_000:03d}"


def _hold(held: dict, t0: str, message: object) -> None:
    held[t0] = message
    while len(held) > HELD:
        held.pop(next(iter(held)))


def watch(node_name: str, ticks: int | None, stop: threading.Event) -> None:
    """Print until stopped, or until there were so many lines."""
    import rclpy

    from alpamayo_ros.msg import InferenceStatus, Reasoning, Trajectory

    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=rclpy.SignalHandlerOptions.NO)
    listener = rclpy.create_node("watch", context=context, use_global_arguments=False, start_parameter_services=False)
    executor = rclpy.executors.SingleThreadedExecutor(context=context)
    executor.add_node(listener)
    seen = Watch()
    outputs = f"{node_name.rstrip('/')}/output"
    listener.create_subscription(Trajectory, f"{outputs}/trajectory", seen.on_trajectory, 10)
    listener.create_subscription(Reasoning, f"{outputs}/reasoning_stamped", seen.on_reasoning, 10)
    listener.create_subscription(InferenceStatus, f"{outputs}/status", seen.on_status, 10)
    patient_until = time.monotonic() + SILENCE
    try:
        while not stop.is_set() and (ticks is None or seen.lines < ticks):
            executor.spin_once(timeout_sec=0.1)
            if not seen.heard and time.monotonic() > patient_until:
                patient_until = float("inf")
                print(f"nothing from {node_name} yet: is it running? --node says which one to watch", file=sys.stderr)
    finally:
        executor.shutdown()
        listener.destroy_node()
        rclpy.shutdown(context=context)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 after --ticks lines, and when interrupted."""
    options = build_parser().parse_args(arguments)
    stop = stop_on_signals()
    try:
        watch(options.node, options.ticks, stop)
    except ImportError as error:
        print(f"error: {error}; watching a node needs ROS 2 (rclpy)", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    run_command(main)
