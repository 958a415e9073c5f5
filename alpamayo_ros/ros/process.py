"""The node as a process: arguments in, an exit code out, and an orderly end on SIGINT and SIGTERM at any moment."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import rclpy
from rclpy.signals import SignalHandlerOptions

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.ros.executor import serve
from alpamayo_ros.ros.node import AlpamayoNode

PATIENCE = 3.0  # s; what is still busy then (loading, a prediction) is cut off
USAGE_ERROR = 2


def run(argv: Sequence[str] | None = None, make_engine: Callable[[Settings], Engine] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM.

    Args:
        argv: the command line, program name included; with --ros-args.
        make_engine: replaces the engine that the settings ask for.

    Returns:
        0 after an orderly end; 2, with one message on stderr, when the arguments or parameters can't be used.
    """
    _log_other_packages()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        # rclpy's own handlers invalidate the context, and a transition under way never ends
        rclpy.init(args=None if argv is None else list(argv), signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # RCLError has no public name
        print(f"error: {_without_source_lines(error)}", file=sys.stderr)
        return USAGE_ERROR
    try:
        node = AlpamayoNode(make_engine)
    except ConfigurationError as error:
        print(f"error: the node's parameters can't be used\n{_indented(error)}", file=sys.stderr)
        rclpy.shutdown()
        return USAGE_ERROR
    _serve(node, stop)
    return 0


def _serve(node: AlpamayoNode, stop: threading.Event) -> None:
    spinner = threading.Thread(target=serve, args=(node, stop), name="spin")
    spinner.start()
    start = threading.Thread(target=node.autostart, name="autostart", daemon=True)
    start.start()
    stop.wait()
    cut_off = threading.Timer(PATIENCE, _exit_now)
    cut_off.daemon = True
    cut_off.start()
    start.join()
    spinner.join()
    node.close()
    node.destroy_node()
    rclpy.try_shutdown()
    cut_off.cancel()


def _log_other_packages() -> None:
    """Print the warnings of other packages; this one's records go into the node's log (logs.py)."""
    logging.basicConfig(level=logging.WARNING, format="[%(levelname)s] [%(name)s]: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: record.name.partition(".")[0] != "alpamayo_ros")
    logging.getLogger("alpamayo_ros").setLevel(logging.INFO)


def _exit_now() -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _indented(error: Exception) -> str:
    return "\n".join(f"  {line}" for line in str(error).splitlines())


def _without_source_lines(error: Exception) -> str:
    """RCLError's message without the places in rcl's own sources."""
    return str(error).split(", at /")[0]
