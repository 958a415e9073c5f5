"""Publishes a bag's messages on their topics, with the gaps between them that they were received with.

What `ros2 bag play` does, for machines without it. Messages keep their stamps: with --clock the bag's time is published
on /clock, for nodes with use_sim_time.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from alpamayo_ros.core.types import AlpamayoError, ConfigurationError
from alpamayo_ros.evaluation.bag import BagReader, RawMessage
from alpamayo_ros.progress import progress
from alpamayo_ros.stop_signals import stop_on_signals
from alpamayo_ros.tools.command import guarded, run_command

SECOND = 1_000_000_000
CLOCK_TOPIC = "/clock"
LIMITS = {"rate": 1e3, "clock": 1e3, "duration": 1e9}  # times real time, Hz, s; and as little as one through these
LONGEST_DELAY = 1e5  # s
DEFAULT_CLOCK_HZ = 40.0
DEPTH = 100
LINGER_NS = SECOND // 2  # the clock goes on so long, and what was sent last gets through
SUBSCRIBERS_TIMEOUT = 60.0  # s


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.play_bag",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("bag", type=Path, help="a folder, or a .mcap or .db3 file")
    parser.add_argument("--rate", type=float, default=1.0, help="times real time (default 1)")
    parser.add_argument("--loop", action="store_true", help="begin again at the end, until interrupted")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="play so much of the bag (default: all)")
    parser.add_argument("--topics", nargs="+", metavar="TOPIC", help="play these only")
    parser.add_argument(
        "--clock",
        type=float,
        nargs="?",
        const=DEFAULT_CLOCK_HZ,
        metavar="HZ",
        help=f"publish the bag's time on /clock, so often (default {DEFAULT_CLOCK_HZ:.0f})",
    )
    parser.add_argument(
        "--wait-for-subscribers",
        type=int,
        default=0,
        metavar="N",
        help=f"begin when N of the topics have a subscriber; give up after {SUBSCRIBERS_TIMEOUT:.0f} s (default 0)",
    )
    parser.add_argument(
        "--delay", type=float, default=1.0, metavar="SECONDS", help="then wait so long for others (default 1)"
    )
    return parser


def message_class(kind: str) -> type:
    """The class of a message type such as "nav_msgs/msg/Odometry".

    The name comes from a bag, and importing a module runs it: only packages of messages are imported, which have the
    type support that rosidl generates beside them.

    Raises:
        ImportError: no message of that name is installed.
    """
    package, _, name = kind.partition("/msg/")
    spec = find_spec(package) if package.isidentifier() else None
    folders = spec.submodule_search_locations if spec is not None else None
    if not any(any(Path(folder).glob(f"{package}_s__rosidl_typesupport_*")) for folder in folders or ()):
        raise ImportError(f"there is no package of messages {package!r}")
    found = getattr(import_module(f"{package}.msg"), name, None)
    if not isinstance(found, type):
        raise ImportError(f"{package} has no message {name!r}")
    return found


class Player:
    """Publishes the messages of a bag from one thread, as an ordinary ROS node.

    Publishers are reliable, which best-effort subscribers match too; topics that were recorded as transient local are
    published so. Messages go out as the bytes that the bag has.
    """

    def __init__(self, bag: BagReader, options: argparse.Namespace, stop: threading.Event) -> None:
        import rclpy

        self._bag = bag
        self._rate = options.rate
        self._stop = stop
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=rclpy.SignalHandlerOptions.NO)
        self._node = rclpy.create_node(
            "play_bag", context=self._context, use_global_arguments=False, start_parameter_services=False
        )
        self.publishers = self._create_publishers(options.topics, skip_clock=options.clock is not None)
        self._clock: Any = None
        if options.clock is not None:
            from rosgraph_msgs.msg import Clock

            self._clock = self._node.create_publisher(Clock, CLOCK_TOPIC, 10)
            self._clock_period = round(SECOND / options.clock)
        end_ns = bag.end_ns if options.duration is None else bag.start_ns + round(options.duration * SECOND)
        self.end_ns = min(end_ns, bag.end_ns)
        self.largest_delay = 0.0  # s that a message went out after its time

    def _create_publishers(self, topics: list[str] | None, *, skip_clock: bool) -> dict[str, Any]:
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

        publishers: dict[str, Any] = {}
        for topic in topics or self._bag.topics:
            if topic not in self._bag.topics:
                raise ConfigurationError(f"{self._bag.path} has no topic {topic}; it has {self._bag.describe_topics()}")
            if topic == CLOCK_TOPIC and skip_clock:
                continue
            kind = self._bag.topics[topic]
            try:
                message = message_class(kind)
            except ImportError as error:
                print(f"warning: {topic} is left out: its type {kind} is not installed ({error})", file=sys.stderr)
                continue
            latched = topic in self._bag.latched
            qos = QoSProfile(
                depth=DEPTH,
                reliability=ReliabilityPolicy.RELIABLE,
                durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
            )
            publishers[topic] = self._node.create_publisher(message, topic, qos)
        if not publishers:
            raise ConfigurationError(f"{self._bag.path} has nothing to play; its topics: {self._bag.describe_topics()}")
        return publishers

    def wait_for_subscribers(self, count: int) -> None:
        """Wait until so many topics are listened to.

        Raises:
            AlpamayoError: that took too long.
        """
        given_up = time.monotonic() + SUBSCRIBERS_TIMEOUT
        while not self._stop.wait(0.05):
            heard = [topic for topic, publisher in self.publishers.items() if publisher.get_subscription_count()]
            if len(heard) >= count:
                return
            if time.monotonic() > given_up:
                raise AlpamayoError(
                    f"after {SUBSCRIBERS_TIMEOUT:.0f} s {len(heard)} of the topics have a subscriber "
                    f"({', '.join(heard) or 'none'}), expected {count} of {', '.join(self.publishers)}"
                )

    def play(self, bar: tqdm) -> int:
        """Publish the bag once, or until stopped; how many messages went out."""
        self._started = time.monotonic_ns()
        self._next_clock = self._bag.start_ns
        sent = 0
        for message in self._messages():
            if not self._advance(message.receive_ns):
                return sent
            self.publishers[message.topic].publish(message.data)
            sent += 1
            bar.update((message.receive_ns - self._bag.start_ns) / SECOND - bar.n)
        self._advance(self.end_ns + LINGER_NS)
        return sent

    def _messages(self) -> Iterator[RawMessage]:
        for message in self._bag.raw_messages(self.publishers):
            if message.receive_ns > self.end_ns:
                return
            yield message

    def _advance(self, bag_ns: int) -> bool:
        """Sleep until that time of the bag, with the clock ticking; False when stopped."""
        while True:
            due = bag_ns if self._clock is None else min(bag_ns, self._next_clock)
            late = (time.monotonic_ns() - self._started) / SECOND - (due - self._bag.start_ns) / SECOND / self._rate
            if self._stop.wait(max(-late, 0)):
                return False
            self.largest_delay = max(self.largest_delay, late)
            if self._clock is not None and due == self._next_clock:
                self._publish_clock(due)
                self._next_clock += self._clock_period
            elif due == bag_ns:
                return True

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait with the clock standing at the bag's start: who follows it has to have it before the first message."""
        until = time.monotonic() + seconds
        while not stop.is_set() and (left := until - time.monotonic()) > 0:
            if self._clock is not None:
                self._publish_clock(self._bag.start_ns)
            stop.wait(min(left, 0.1))

    def _publish_clock(self, bag_ns: int) -> None:
        from rosgraph_msgs.msg import Clock

        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(bag_ns, SECOND)
        self._clock.publish(message)

    def close(self) -> None:
        """Leave ROS."""
        import rclpy

        self._node.destroy_node()
        rclpy.shutdown(context=self._context)


def play(options: argparse.Namespace, stop: threading.Event) -> int:
    """Play as the command line says; 0."""
    for name, most in LIMITS.items():
        value = getattr(options, name)
        if value is not None and not 1 / most <= value <= most:
            raise ConfigurationError(f"--{name} {value}: expected more than 0, from {1 / most:g} to {most:g}")
    if not 0 <= options.delay <= LONGEST_DELAY:
        raise ConfigurationError(f"--delay {options.delay}: expected 0 to {LONGEST_DELAY:g} s")
    with BagReader(options.bag) as bag:
        try:
            player = Player(bag, options, stop)
        except ImportError as error:
            raise AlpamayoError(f"{error}; playing a bag needs ROS 2 (rclpy)") from error
        try:
            player.wait_for_subscribers(options.wait_for_subscribers)
            player.wait(options.delay, stop)
            sent = 0
            while not stop.is_set():
                total = round((player.end_ns - bag.start_ns) / SECOND, 1)
                layout = "{desc} {n:.1f} of {total} s |{bar}|"
                with progress(desc="playing", total=total, bar_format=layout) as bar:
                    sent += player.play(bar)
                if not options.loop:
                    break
        finally:
            player.close()
        for warning in bag.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    print(
        f"{'interrupted after' if stop.is_set() else 'played'} {sent} messages of {len(player.publishers)} topics; "
        f"the latest was {player.largest_delay * 1e3:.0f} ms late"
    )
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 at the end of the bag, and when interrupted."""
    options = build_parser().parse_args(arguments)
    stop = stop_on_signals()
    return guarded(lambda: play(options, stop))


if __name__ == "__main__":
    run_command(main)
