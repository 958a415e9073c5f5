"""`make closed-loop`: a node drives routes of the synthetic world, through DDS, in lock step, and is scored.

It starts the node with the checkpoint `mini`, or with what is asked for, drives each route by its trajectories, and
compares with what needs no model: standing, straight ahead, constant curvature, and with the expert's own plans, by the
same follower.
"""

from __future__ import annotations

import argparse
import contextlib
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from alpamayo_ros.core.types import AlpamayoError, ConfigurationError
from alpamayo_ros.engine.factory import KINDS
from alpamayo_ros.evaluation.output_folder import REPORT
from alpamayo_ros.evaluation.report import NO_MODEL, RANDOM_WEIGHTS, versions
from alpamayo_ros.evaluation.rig import parameter_argument
from alpamayo_ros.progress import progress
from alpamayo_ros.sim.closed_loop import drive_closed_loop
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.scoring import ClosedLoopScore, score, score_table
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED, World
from alpamayo_ros.stop_signals import stop_on_signals
from alpamayo_ros.tools.closed_loop_report import FORMAT, passed, results, write_report
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.direct_loop import COMPARED, MOST_ROUTES
from alpamayo_ros.tools.drive_node import SECOND, DriveNode
from alpamayo_ros.tools.drive_video import DriveVideo
from alpamayo_ros.tools.live_loop import LiveLoop, LiveOptions
from alpamayo_ros.tools.live_paths import START_TIMEOUT, child_process, patient_node

ROOT = Path(__file__).parents[2]
START_NS = 1_000_000_000_000_000_000  # of simulated time
BETWEEN_NS = 10 * SECOND  # from route to route: the clock jumps, and the node forgets the last one
# One sample of little noise, greedy words: what six samples and their medoid would cost, a processor has no time for.
SAMPLING = {
    "sampling.num_samples": "1",
    "sampling.noise_temperature": "0.5",
    "sampling.temperature": "0.0",
    "sampling.max_reasoning_tokens": "24",
}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.closed_loop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--routes", type=int, default=20, help="default 20")
    add("--length", type=float, default=500.0, metavar="M", help="of each route (default 500)")
    add("--first-seed", type=int, default=FIRST_HELD_OUT_SEED, help=f"of the worlds (default {FIRST_HELD_OUT_SEED})")
    add("--engine", choices=KINDS, default="transformers", help="the node's (default transformers)")
    add("--checkpoint", default="mini", help="the engine's (default mini, which comes with the package)")
    add("--config", type=Path, default=ROOT / "config" / "physical_ai_4cam.yaml", metavar="RIG.yaml")
    add("-p", "--parameter", action="append", default=[], metavar="NAME:=VALUE", help="another of the node's")
    add("--size", type=int, nargs=2, default=[160, 96], metavar=("WIDTH", "HEIGHT"), help="pixels (default 160 96)")
    add("--latency", type=float, default=0.1, metavar="SECONDS", help="from t0 until it is followed (default 0.1)")
    add("--require", type=int, default=0, metavar="N", help="end with 1 when fewer routes are passed")
    add("--no-comparison", action="store_true", help="leave out what needs no model")
    add("--video", action="store_true", help="of each route: what the front camera saw, the paths and the reasoning")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"where {REPORT}, videos and the node's log go (default out/closed_loop)",
    )
    return parser


def drive_routes(options: argparse.Namespace, log: Path, stop: threading.Event) -> dict[str, Any]:
    """The node's part of the report: each route's score, and what came of the ticks."""
    parameters = {"engine.kind": options.engine, "engine.checkpoint": options.checkpoint, **SAMPLING}
    parameters |= {name: str(value) for name, value in map(parameter_argument, options.parameter)}
    cameras = rig(*options.size)
    live = LiveOptions(closed_loop=True, lock_step=True, clock=True, latency_s=options.latency, form="png")
    scores, skips, trajectories, unanswered = list[ClosedLoopScore](), Counter[str](), 0, 0
    command = patient_node(options.config, parameters)
    with log.open("w") as output, child_process(command, output), DriveNode(cameras) as node:
        try:
            node.wait_until_heard(START_TIMEOUT)
        except AlpamayoError as error:
            raise AlpamayoError(f"{error}; its log is {log}") from error
        start_ns = START_NS
        for world in progress(_worlds(options), desc="the node drives", unit=" routes"):
            with contextlib.ExitStack() as stack:
                renderer, watch = Renderer(world, cameras), None
                if options.video:
                    watch = stack.enter_context(DriveVideo(log.with_name(f"{world.seed}.webm"), world, renderer, node))
                drive = LiveLoop(Journey(world), renderer, node, live, start_ns, watch).run(float("inf"), stop)
            if stop.is_set():
                raise AlpamayoError("interrupted; nothing was written")
            start_ns = drive.end_ns + BETWEEN_NS
            scores.append(score(world, drive.trace))
            skips += drive.skips
            trajectories, unanswered = trajectories + drive.trajectories, unanswered + drive.unanswered
        facts = {"engine": node.engine, "trained": node.trained}
    ticks = {"trajectories": trajectories, "unanswered": unanswered, "skips": dict(skips)}
    return {**facts, "ticks": ticks, "routes": scores}


def compare(options: argparse.Namespace, stop: threading.Event) -> dict[str, list[ClosedLoopScore]]:
    """The same routes without a node, by the expert's plans and by what needs no model."""
    driven = dict[str, list[ClosedLoopScore]]()
    for name, policy in COMPARED.items():
        driven[name] = []
        for world in progress(_worlds(options), desc=name, unit=" routes"):
            if stop.is_set():
                raise AlpamayoError("interrupted; nothing was written")
            driven[name].append(score(world, drive_closed_loop(world, policy, latency_s=options.latency)))
    return driven


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Drive, compare, print and write; the exit status."""
    if not 1 <= options.routes <= MOST_ROUTES:
        raise ConfigurationError(f"--routes {options.routes}: expected 1 to {MOST_ROUTES}")
    out = options.out or ROOT / "out" / "closed_loop"
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        driven = drive_routes(options, out / "node.log", stop)
    except ImportError as error:
        raise AlpamayoError(f"{error}; a closed loop with a node needs ROS 2 (rclpy)") from error
    minutes = (time.monotonic() - started) / 60
    compared = {} if options.no_comparison else compare(options, stop)
    scores: list[ClosedLoopScore] = driven["routes"]
    print(f"{driven['engine']}, {minutes:.1f} minutes\n{score_table(scores)}")
    print(f"ticks: {driven['ticks']}")
    for name, each in compared.items():
        print(f"{name}: {passed(each)} of {len(each)} routes passed")
    if not driven["trained"]:
        print(NO_MODEL if options.engine == "null" else RANDOM_WEIGHTS)
    report = {
        "format": FORMAT,
        **driven,
        **results(scores),
        "compared": {name: results(each) for name, each in compared.items()},
        "latency_s": options.latency,
        "versions": versions(),
    }
    write_report(report, out)
    return 0 if passed(scores) >= options.require else 1


def _worlds(options: argparse.Namespace) -> list[World]:
    return [World.random(options.first_seed + number, options.length) for number in range(options.routes)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when as many routes were passed as --require asks for."""
    options = build_parser().parse_args(arguments)
    stop = stop_on_signals()
    return guarded(lambda: run(options, stop))


if __name__ == "__main__":
    run_command(main)
