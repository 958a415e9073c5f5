"""Routes driven by a checkpoint without a node and without ROS, several at once, in processes of one thread each.

    python -m alpamayo_ros.tools.direct_loop --checkpoint out/mini/checkpoint --jobs 20 --out out/direct

It scores as `closed_loop` does, faster where there are many cores, and says nothing about the node.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import torch

from alpamayo_ros.core.types import ConfigurationError, SamplingOptions
from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.progress import progress
from alpamayo_ros.sim.closed_loop import drive_closed_loop
from alpamayo_ros.sim.policies import BASELINES, Policy, engine_policy, expert
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.scoring import ClosedLoopScore, score, score_table
from alpamayo_ros.sim.world import FIRST_HELD_OUT_SEED, World
from alpamayo_ros.tools.closed_loop_report import FORMAT, NAME, passed, results, write_report
from alpamayo_ros.tools.command import guarded, run_command

# One sample of little noise, greedy words: what six samples and their medoid would cost, a processor has no time for.
SAMPLING = SamplingOptions(num_samples=1, noise_temperature=0.5, temperature=0.0, max_reasoning_tokens=24)
COMPARED: Mapping[str, Policy] = {"expert": expert, **BASELINES}
MOST_ROUTES = 1000
WITHOUT = "without a node"


@dataclass(frozen=True)
class Routes:
    """What is driven."""

    seeds: range
    length: float  # m of each
    size: tuple[int, int]  # pixels, width and height of the pictures
    latency_s: float


def drive_directly(checkpoint: str, routes: Routes, jobs: int) -> list[ClosedLoopScore]:
    """The scores of routes by a checkpoint (folder or name), driven in so many processes, in their order."""
    with _processes(jobs) as pool:
        started = {pool.submit(_drive, checkpoint, seed, routes): seed for seed in routes.seeds}
        scores: dict[int, ClosedLoopScore] = {}
        for done in progress(as_completed(started), desc="driven directly", unit=" routes", total=len(started)):
            scores[started[done]] = done.result()
    return [scores[seed] for seed in routes.seeds]


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """So many processes. After an error or a signal they end at once: the routes that wait would take hours."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown()


@cache
def _policy(checkpoint: str) -> Policy:
    """Of a worker process. Not its initializer: an error there would be told as that of a broken pool."""
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    return engine_policy(TransformersEngine.load(checkpoint, device="cpu"), SAMPLING)


def _drive(checkpoint: str, seed: int, routes: Routes) -> ClosedLoopScore:
    policy, world = _policy(checkpoint), World.random(seed, routes.length)
    renderer = Renderer(world, rig(*routes.size))
    return score(world, drive_closed_loop(world, policy, renderer=renderer, latency_s=routes.latency_s))


def compare_directly(routes: Routes, jobs: int) -> dict[str, list[ClosedLoopScore]]:
    """The same routes by the expert's own plans and by what needs no model, which need no pictures."""
    tasks = [(name, seed) for name in COMPARED for seed in routes.seeds]
    with _processes(jobs) as pool:
        started = [pool.submit(_drive_without_model, name, seed, routes) for name, seed in tasks]
        done = [each.result() for each in progress(started, desc="what needs no model", unit=" routes")]
    count = len(routes.seeds)
    return {name: done[place * count : (place + 1) * count] for place, name in enumerate(COMPARED)}


def _drive_without_model(name: str, seed: int, routes: Routes) -> ClosedLoopScore:
    world = World.random(seed, routes.length)
    return score(world, drive_closed_loop(world, COMPARED[name], latency_s=routes.latency_s))


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.direct_loop",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--checkpoint", default="mini", help="default mini, which comes with the package")
    add("--routes", type=int, default=20, help="default 20")
    add("--length", type=float, default=500.0, metavar="M", help="of each route (default 500)")
    add("--first-seed", type=int, default=FIRST_HELD_OUT_SEED, help=f"of the worlds (default {FIRST_HELD_OUT_SEED})")
    add("--size", type=int, nargs=2, default=[160, 96], metavar=("WIDTH", "HEIGHT"), help="pixels (default 160 96)")
    add("--latency", type=float, default=0.1, metavar="SECONDS", help="from t0 until it is followed (default 0.1)")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default %(default)s)")
    add("--no-comparison", action="store_true", help="leave out what needs no model")
    add("--out", type=Path, required=True, metavar="DIR", help=f"where {NAME} goes")
    options = parser.parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if not 1 <= options.routes <= MOST_ROUTES:
        raise ConfigurationError(f"--routes {options.routes}: expected 1 to {MOST_ROUTES}")
    if options.jobs < 1:
        raise ConfigurationError(f"--jobs {options.jobs}: expected at least 1")
    seeds = range(options.first_seed, options.first_seed + options.routes)
    routes = Routes(seeds, options.length, tuple(options.size), options.latency)
    trained = ModelConfig.load(options.checkpoint).trained
    scores = drive_directly(options.checkpoint, routes, min(options.jobs, options.routes))
    print(score_table(scores))
    compared = {} if options.no_comparison else compare_directly(routes, options.jobs)
    for name, each in compared.items():
        print(f"{name}: {passed(each)} of {len(each)} routes passed")
    report = {
        "format": FORMAT,
        "engine": f"transformers engine with {options.checkpoint}, {WITHOUT}",
        "trained": trained,
        "ticks": {},
        **results(scores),
        "compared": {name: results(each) for name, each in compared.items()},
        "latency_s": options.latency,
    }
    write_report(report, options.out)
    return 0


if __name__ == "__main__":
    run_command(main)
