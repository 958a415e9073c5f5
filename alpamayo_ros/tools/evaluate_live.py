"""Scores a running node: each path when the vehicle has driven what it predicted, beside latency and dropped ticks.

Run it beside the node, on a vehicle or while a bag is played; Ctrl-C, --duration or silence ends it and writes the
results, a folder with report.json and ticks.jsonl. Scores are those of evaluate_bag.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.evaluation.evaluate import TICKS
from alpamayo_ros.evaluation.live import LiveEvaluation
from alpamayo_ros.evaluation.output_folder import REPORT, check_output, output_folder
from alpamayo_ros.evaluation.report import OPEN_LOOP, RANDOM_WEIGHTS, Record, skip_table, table, versions
from alpamayo_ros.evaluation.rig import load_rig, resolve_topic
from alpamayo_ros.evaluation.scores import finite
from alpamayo_ros.tools.command import run_command

DEPTH = 1000  # of subscriptions: nothing may be lost while a path is scored
POLL = 0.05  # s
FORMAT = "alpamayo_ros live evaluation 1"


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.evaluate_live",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--config", type=Path, required=True, metavar="RIG.yaml", help="the parameter file that the node was given")
    add("--out", type=Path, required=True, metavar="DIR", help="where the results go; must not exist yet")
    add("--node", default="/alpamayo", help="the node's full name (default /alpamayo)")
    add("--odometry-topic", metavar="TOPIC", help="default: as in the config")
    add("--duration", type=float, metavar="SECONDS", help="end after so long (default: at Ctrl-C)")
    add("--silence", type=float, metavar="SECONDS", help="end when no odometry has come for so long, after some had")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 when some path was scored, 1 otherwise.
    """
    options = build_parser().parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    try:
        return evaluate(options, stop)
    except ImportError as error:
        print(f"error: {error}; evaluating live needs ROS 2 (rclpy)", file=sys.stderr)
        return 1
    except AlpamayoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def evaluate(options: argparse.Namespace, stop: threading.Event, context: Any = None) -> int:
    """Listen until `stop` is set, or as the options say, and write the results."""
    changes = {} if options.odometry_topic is None else {"odometry.topic": options.odometry_topic}
    settings = load_rig(options.config, changes)
    check_output(options.out, overwrite=False)
    live, records = LiveEvaluation(settings), list[Record]()
    last_status = _listen(options, live, records, resolve_topic(settings.odometry.topic), stop, context)
    records += live.finish()
    trained = bool(getattr(last_status, "trained", False))
    report = {
        "format": FORMAT,
        "notes": [OPEN_LOOP] if trained else [OPEN_LOOP, RANDOM_WEIGHTS],
        "trained": trained,
        **live.summary(records),
        "engine": getattr(last_status, "engine", ""),
        "settings": settings.flat(),
        "versions": versions(),
    }
    with output_folder(options.out, overwrite=False) as folder:
        lines = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
        (folder / TICKS).write_text(lines, encoding="utf-8")
        (folder / REPORT).write_text(json.dumps(finite(report), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    _show(report, options.out)
    return 0 if report["ticks"]["ok"] else 1


def _listen(
    options: argparse.Namespace,
    live: LiveEvaluation,
    records: list[Record],
    odometry_topic: str,
    stop: threading.Event,
    context: Any,
) -> Any:
    """Take messages until the end; returns the last status."""
    import rclpy
    from nav_msgs.msg import Odometry
    from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
    from rclpy.signals import SignalHandlerOptions

    from alpamayo_ros.msg import InferenceStatus, Trajectory, TrajectoryCandidates

    own_context = context is None
    if own_context:
        context = rclpy.Context()
        rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    listener = rclpy.create_node("alpamayo_evaluation", context=context)
    executor = rclpy.executors.SingleThreadedExecutor(context=context)
    executor.add_node(listener)
    heard, last = time.monotonic(), {"status": None, "odometry": None}

    def on_odometry(message: Any) -> None:
        nonlocal heard
        heard, last["odometry"] = time.monotonic(), message
        live.add_odometry(message)

    def on_status(message: Any) -> None:
        last["status"] = message
        live.add_status(message)

    output = f"{options.node.rstrip('/')}/output"
    reliable = QoSProfile(depth=DEPTH)
    for kind, topic, take in (
        (Trajectory, "trajectory", live.add_trajectory),
        (TrajectoryCandidates, "candidates", live.add_candidates),
        (InferenceStatus, "status", on_status),
    ):
        listener.create_subscription(kind, f"{output}/{topic}", take, reliable)
    sensor = QoSProfile(depth=DEPTH, reliability=ReliabilityPolicy.BEST_EFFORT)
    listener.create_subscription(Odometry, odometry_topic, on_odometry, sensor)
    try:
        from tf2_msgs.msg import TFMessage

        latched = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        listener.create_subscription(TFMessage, "/tf_static", live.add_static, latched)
    except ImportError:
        pass  # not everywhere: odometry.child_to_base then says where base_link is
    started = shown = time.monotonic()
    try:
        while not stop.is_set():
            executor.spin_once(timeout_sec=POLL)
            records.extend(live.due())
            now = time.monotonic()
            if options.duration is not None and now - started >= options.duration:
                break
            if options.silence is not None and last["odometry"] is not None and now - heard >= options.silence:
                break
            if now - shown >= 5:
                shown = now
                print(f"{len(records)} paths scored after {now - started:.0f} s", file=sys.stderr)
    finally:
        executor.shutdown()
        listener.destroy_node()
        if own_context:
            rclpy.shutdown(context=context)
    return last["status"]


def _show(report: Mapping[str, Any], out: Path) -> None:
    live = report["live"]
    print(f"{report['ticks']['ok']} paths were scored; {live['incomplete']} came without all of their messages")
    print(f"the node published {live['ticks_published']}, skipped {live['ticks_skipped']}", end="")
    print(f" and dropped {live['ticks_dropped']} ticks; skipped, by reason:")
    print(skip_table(report["skips"]))
    if report["ticks"]["ok"]:
        age = live["age_at_publication_s"]
        print(f"\n{table(report)}")
        print(f"age at publication: median {age['median'] * 1e3:.0f} ms, 99 % within {age['p99'] * 1e3:.0f} ms")
    for note in report["notes"]:
        print(note)
    print(f"report:     {out / REPORT}")


if __name__ == "__main__":
    run_command(main)
