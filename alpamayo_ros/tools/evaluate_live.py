"""Scores a running node: each path when the vehicle has driven what it predicted, beside latency and dropped ticks.

Run it beside the node, on a vehicle or while a bag is played; Ctrl-C, --duration or silence ends it and writes the
results, a folder with report.html, report.json and ticks.jsonl. Scores are those of evaluate_bag. What was driven is
published as NODE/evaluation/driven_path when a path is scored.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.evaluation.live import LiveEvaluation
from alpamayo_ros.evaluation.live_report import LiveReport
from alpamayo_ros.evaluation.output_folder import PAGE, REPORT, check_output
from alpamayo_ros.evaluation.report import skip_table, table
from alpamayo_ros.evaluation.rig import check_odometry_topic, load_rig
from alpamayo_ros.evaluation.thresholds import NAMES, TOO_BAD, broken, parse_limit
from alpamayo_ros.stop_signals import stop_on_signals
from alpamayo_ros.tools.command import node_name, run_command


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
    add("--node", type=node_name, default="/alpamayo", help="the node's full name (default /alpamayo)")
    add("--odometry-topic", metavar="TOPIC", help="default: as in the config")
    add("--duration", type=float, metavar="SECONDS", help="end after so long (default: at Ctrl-C)")
    add("--overwrite", action="store_true", help="replace an earlier evaluation in --out")
    add(
        "--no-pictures",
        dest="pictures",
        action="store_false",
        help="don't listen to the anchor camera for its pictures",
    )
    add(
        "--fail-above",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"end with status {TOO_BAD} when a figure is above it; NAME is one of {', '.join(NAMES)}; may be repeated",
    )
    add("--silence", type=float, metavar="SECONDS", help="end when no odometry has come for so long, after some had")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 when some path was scored, 3 when a figure is above a limit of --fail-above, 1 otherwise.
    """
    given = sys.argv[1:] if arguments is None else arguments
    of_ros = given.index("--ros-args") if "--ros-args" in given else len(given)  # a launch file adds them
    options = build_parser().parse_args(given[:of_ros], argparse.Namespace(ros_arguments=given[of_ros:]))
    stop = stop_on_signals()
    try:
        return evaluate(options, stop)
    except ImportError as error:
        print(f"error: {error}; evaluating live needs ROS 2 (rclpy)", file=sys.stderr)
        return 1
    except AlpamayoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def evaluate(options: argparse.Namespace, stop: threading.Event, context: Any = None) -> int:
    """Listen until `stop` is set, or as the options say, and write the results.

    Args:
        options: of the command line.
        stop: ends it.
        context: of rclpy; None makes one for the time.

    Returns:
        As `main`.
    """
    from alpamayo_ros.tools.live_listener import LiveListener

    limits = [parse_limit(text) for text in options.fail_above]
    changes = {} if options.odometry_topic is None else {"odometry.topic": options.odometry_topic}
    settings = load_rig(options.config, changes)
    check_odometry_topic(settings, options.odometry_topic)
    check_output(options.out, overwrite=options.overwrite)
    live, report = LiveEvaluation(settings), LiveReport(settings, options.node)
    with nullcontext(context) if context is not None else _own_context(options.ros_arguments) as used:
        listener = LiveListener(options, settings, live, report, used)
        try:
            listener.listen(stop)
        finally:
            listener.close()
    found = report.write(options.out, live, listener.heard, overwrite=options.overwrite)
    _show(found, options.out)
    wrong = broken(found, limits)
    for text in wrong:
        print(f"failed: {text}", file=sys.stderr)
    return TOO_BAD if wrong else 0 if found["ticks"]["ok"] else 1


@contextmanager
def _own_context(arguments: list[str]) -> Iterator[Any]:
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    context = rclpy.Context()
    rclpy.init(args=arguments, context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        yield context
    finally:
        rclpy.shutdown(context=context)


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
        rate = live["effective_rate_hz"]
        print(f"effective rate: median {rate['median']:.2f} Hz" if rate["n"] else "effective rate: not known")
    for note in report["notes"]:
        print(note)
    for name, file in (("page", PAGE), ("report", REPORT)):
        print(f"{name + ':':<12}{out / file}")


if __name__ == "__main__":
    run_command(main)
