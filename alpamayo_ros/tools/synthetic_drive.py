"""A drive in the synthetic world: written to a ROS 2 bag, or sent as topics, in closed loop too.

With --out the expert drives, and a bag (MCAP) is written: four cameras, odometry and tf at 50 Hz, navigation.
Without it the same goes out as topics, by the machine's time or with --clock by simulated time. With --closed-loop the
vehicle follows the trajectories of a running node (/alpamayo) instead of the expert; with --lock-step, in simulated
time that goes on when a tick has been answered. What a closed loop scored is printed at its end.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

from alpamayo_ros.core.types import AlpamayoError, ConfigurationError
from alpamayo_ros.evaluation.bag import BagWriter
from alpamayo_ros.progress import progress
from alpamayo_ros.sim.drive_messages import CAMERA_HZ, FORMATS, DriveMessages
from alpamayo_ros.sim.imperfections import Imperfections
from alpamayo_ros.sim.journey import STEP_S, Journey
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.scoring import score, score_table
from alpamayo_ros.sim.world import World
from alpamayo_ros.stop_signals import stop_on_signals
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.drive_node import DriveNode
from alpamayo_ros.tools.live_loop import LiveLoop, LiveOptions

START_NS = 1_000_000_000_000_000_000  # of bags and of simulated time
SUBSCRIBERS_TIMEOUT_S = 60.0
LATEST_S = 2.0  # messages that are late by this come into the bag


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.synthetic_drive",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--duration", type=float, metavar="SECONDS", help="default 20; in a closed loop until the route ends")
    add("--seed", type=int, default=0, help="another seed is another world (default 0)")
    add("--size", type=int, nargs=2, default=[320, 180], metavar=("WIDTH", "HEIGHT"), help="pixels (default 320 180)")
    add("--camera-hz", type=int, default=10, choices=CAMERA_HZ, help="images a second (default 10)")
    add("--format", choices=FORMATS, default="jpeg", help="of the images (default jpeg; png loses nothing)")
    add("--noise", type=float, default=0.0, metavar="M", help="standard deviation of the odometry's positions")
    add("--jitter", type=float, default=0.0, metavar="SECONDS", help="every message is late by up to this")
    add("--drop", type=float, default=0.0, metavar="SHARE", help="of images and odometry that get lost, 0 to 0.9")
    bag = parser.add_argument_group("into a bag")
    bag.add_argument("--out", type=Path, help="the bag, a folder to be made; without it topics are sent")
    bag.add_argument("--overwrite", action="store_true", help="replace an existing bag")
    topics = parser.add_argument_group("as topics")
    topics.add_argument("--rate", type=float, default=1.0, help="times real time; other than 1 needs --clock")
    topics.add_argument("--clock", action="store_true", help="simulated time: publish /clock")
    topics.add_argument("--closed-loop", action="store_true", help="follow the node's trajectories")
    topics.add_argument("--lock-step", action="store_true", help="wait for each tick's answer; implies --clock")
    topics.add_argument(
        "--latency", type=float, default=0.1, metavar="SECONDS", help="from t0 until it is followed (default 0.1)"
    )
    topics.add_argument(
        "--length", type=float, default=500.0, metavar="M", help="of a closed loop's route (default 500)"
    )
    return parser


def write_bag(options: argparse.Namespace) -> int:
    """The expert's drive as a bag."""
    seconds = 20.0 if options.duration is None else options.duration
    world = World.for_seconds(options.seed, seconds)
    renderer = Renderer(world, rig(*options.size))
    journey, steps = Journey(world), round(seconds / STEP_S) + 1
    with BagWriter(options.out, overwrite=options.overwrite) as bag:
        messages = DriveMessages(
            journey,
            renderer,
            bag,
            start_ns=START_NS,
            camera_hz=options.camera_hz,
            form=options.format,
            imperfections=_imperfections(options),
        )
        images = 0
        for _ in progress(range(steps), desc="rendering", unit=" poses"):
            images += messages.is_image_due
            messages.write()
            journey.drive()
        messages.pass_on(LATEST_S)
    print(f"{options.out}: {images} images of each of {len(renderer.cameras)} cameras, {steps} poses, before losses")
    return 0


def send(options: argparse.Namespace, stop: threading.Event) -> int:
    """The drive as topics."""
    in_time = options.clock or options.lock_step
    if options.rate != 1.0 and not in_time:
        raise ConfigurationError(f"--rate {options.rate} without --clock: stamps would not be the machine's time")
    if not options.rate > 0:
        raise ConfigurationError(f"--rate {options.rate}: expected more than 0")
    if options.latency < 0:
        raise ConfigurationError(f"--latency {options.latency}: expected at least 0")
    if options.closed_loop:
        world = World.random(options.seed, options.length)
        seconds = float("inf") if options.duration is None else options.duration
    else:
        seconds = 20.0 if options.duration is None else options.duration
        world = World.for_seconds(options.seed, seconds)
    live = LiveOptions(
        closed_loop=options.closed_loop,
        lock_step=options.lock_step,
        clock=in_time,
        speed=options.rate,
        latency_s=options.latency,
        camera_hz=options.camera_hz,
        form=options.format,
        imperfections=_imperfections(options),
    )
    renderer = Renderer(world, rig(*options.size))  # which takes a moment, before time begins
    try:
        node = DriveNode(renderer.cameras)
    except ImportError as error:
        raise AlpamayoError(f"{error}; sending topics needs ROS 2 (rclpy), --out does not") from error
    with node:
        if options.closed_loop or options.lock_step:
            node.wait_until_heard(SUBSCRIBERS_TIMEOUT_S)
        start_ns = START_NS if in_time else time.time_ns()
        drive = LiveLoop(Journey(world), renderer, node, live, start_ns).run(seconds, stop)
    if options.closed_loop:
        print(score_table([score(world, drive.trace)]))
        print(f"{drive.trajectories} trajectories came; ticks skipped: {dict(drive.skips) or 'none'}")
    return 0


def _imperfections(options: argparse.Namespace) -> Imperfections:
    return Imperfections(options.noise, options.jitter, options.drop)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when the bag is there, or the drive is over."""
    options = build_parser().parse_args(arguments)
    if options.out is not None:
        return guarded(lambda: write_bag(options), interrupted="interrupted; nothing was written")
    stop = stop_on_signals()
    return guarded(lambda: send(options, stop))


if __name__ == "__main__":
    run_command(main)
