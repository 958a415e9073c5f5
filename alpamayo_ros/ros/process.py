"""The node as a process: arguments in, an exit code out, an orderly end on SIGINT, SIGTERM and SIGHUP at any moment."""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Sequence

import rclpy
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from alpamayo_ros.core.settings import Settings
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.ros.executor import serve
from alpamayo_ros.ros.node import AlpamayoNode
from alpamayo_ros.standard_streams import open_closed_streams
from alpamayo_ros.stop_signals import stop_on_signals

PATIENCE = 3.0  # s; what is still busy then (loading, a prediction) is cut off
USAGE_ERROR = 2
SHARED_MEMORY = "/dev/shm"
LEAST_SHARED_MEMORY = 1 << 20  # bytes
USAGE = (
    "arguments are those of ROS, behind --ros-args: --params-file RIG.yaml, -p NAME:=VALUE, -r FROM:=TO; "
    "docs/node.md lists all parameters"
)


def run(argv: Sequence[str] | None = None, make_engine: Callable[[Settings], Engine] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM.

    Args:
        argv: the command line, program name included; with --ros-args.
        make_engine: replaces the engine that the settings ask for.

    Returns:
        0 after an orderly end; 2, with one message on stderr, when the arguments or parameters can't be used.
    """
    open_closed_streams()
    _log_other_packages()
    stop = stop_on_signals()
    argv = list(sys.argv if argv is None else argv)
    try:
        # rclpy's own handlers invalidate the context, and a transition under way never ends
        rclpy.init(args=argv, signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # RCLError has no public name
        print(f"error: {_without_source_lines(error)}", file=sys.stderr)
        return USAGE_ERROR
    try:
        others = remove_ros_args(argv)[1:]
        if "-h" in others or "--help" in others:
            print(USAGE)
            rclpy.shutdown()
            return 0
        if others:
            raise ConfigurationError(f"{others[0]} is no argument of this node; {USAGE}")
        full = shared_memory_fault(SHARED_MEMORY) if _uses_shared_memory() else None
        if full is not None:
            raise ConfigurationError(full)
        node = AlpamayoNode(make_engine, argv)
    except ConfigurationError as error:
        print(f"error: the node can't start\n{_indented(error)}", file=sys.stderr)
        rclpy.shutdown()
        return USAGE_ERROR
    except Exception as error:  # of rcl, which names no public class: a domain, a name or a folder that can't be used
        print(f"error: the node can't start: {_without_source_lines(error)}", file=sys.stderr)
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
    gc.freeze()  # the last collection would take a second for torch and the model, which end with the process anyway


def _log_other_packages() -> None:
    """Print the warnings of other packages; this one's records go into the node's log (logs.py)."""
    logging.basicConfig(level=logging.WARNING, format="[%(levelname)s] [%(name)s]: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: record.name.partition(".")[0] != "alpamayo_ros")
    logging.getLogger("alpamayo_ros").setLevel(logging.INFO)


def _uses_shared_memory() -> bool:
    """Whether messages go through SHARED_MEMORY: Fast DDS does so unless it is told to use UDP alone."""
    only_udp = os.environ.get("FASTDDS_BUILTIN_TRANSPORTS", "").startswith("UDP")
    return rclpy.get_rmw_implementation_identifier().startswith("rmw_fastrtps") and not only_udp


def shared_memory_fault(folder: str) -> str | None:
    """Why a file system can't be shared memory: Fast DDS doesn't ask, and SIGBUS ends who writes to a full one.

    Args:
        folder: where it is mounted.
    """
    try:
        state = os.statvfs(folder)
    except OSError:
        return None  # not mounted: Fast DDS finds that out itself
    free = state.f_bavail * state.f_frsize
    if free >= LEAST_SHARED_MEMORY:
        return None
    return (
        f"{folder} has {free} bytes left, expected at least {LEAST_SHARED_MEMORY} for messages: remove what fills it, "
        "or set FASTDDS_BUILTIN_TRANSPORTS=UDPv4"
    )


def _exit_now() -> None:
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # where nobody reads what is written any more, flushing raises
        os._exit(0)


def _indented(error: Exception) -> str:
    return "\n".join(f"  {line}" for line in str(error).splitlines())


def _without_source_lines(error: Exception) -> str:
    """RCLError's message without the places in rcl's own sources."""
    if type(error).__name__ == "UnknownROSArgsError":  # which has no public name either; its text is a list
        return f"ROS knows no argument {error}; {USAGE}"
    return str(error).split(", at /")[0]
