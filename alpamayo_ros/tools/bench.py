"""`make bench`: what a tick costs beside the model, and the stages of the reference engine on a tiny checkpoint.

One JSON line per figure. The node runs as a process of its own with an engine that does nothing; its sensors are a
third process. CPU time stands beside that of a bare subscriber under the same load in the same run: these are shared
machines, and only the ratio says something.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path

import numpy as np

from alpamayo_ros.progress import progress
from alpamayo_ros.tools.bench_node import CAMERAS, bench_node, use_local_transports
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.figures import distribution, report


def bench_engine(ticks: int) -> None:
    """Stage times of the transformers engine on the tiny checkpoint: new frames at every tick, and none new."""
    from alpamayo_ros.core.types import EgoPose, Frame, Observation, SamplingOptions
    from alpamayo_ros.engine.factory import create_engine
    from alpamayo_ros.tools.bench_load import jpeg
    from alpamayo_ros.tools.make_checkpoint import main as make_checkpoint

    pictures = [jpeg(1080, 1920, seed) for seed in range(4)]
    history = np.stack([np.linspace(-15.0, 0.0, 16), np.zeros(16), np.zeros(16)], -1)
    pose = EgoPose(4, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
    rotation = np.tile(np.eye(3), (16, 1, 1))

    def observation(tick: int) -> Observation:
        frames = {
            camera: tuple(Frame(1 + 16 * t + camera, camera, 1 + t, pictures[i], "jpeg") for t in range(tick, tick + 4))
            for i, camera in enumerate(CAMERAS.values())
        }
        return Observation(1 + tick + 3, 0, frames, history, rotation, pose)

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / "tiny"
        with contextlib.redirect_stdout(sys.stderr):
            make_checkpoint(["--preset", "tiny", "--out", str(checkpoint)])
        engine = create_engine("transformers", str(checkpoint), device="cpu", max_cameras=4)
        engine.warm_up()
        options = SamplingOptions(num_samples=1, max_reasoning_tokens=20, temperature=0.0)
        engine.predict(observation(0), options)
        stages: dict[str, list[float]] = {}
        for tick in progress(range(1, ticks + 1), desc="transformers engine", unit=" ticks"):
            timings = engine.predict(observation(tick), options).timings
            for name, ms in {**timings.stages_ms, "total": timings.total_ms}.items():
                stages.setdefault(name, []).append(ms)
        engine.close()
    for name, values in stages.items():
        report(
            f"transformers engine, tiny checkpoint, CPU, 4 new 1080p JPEG frames: {name}", "ms", **distribution(values)
        )


def bench_engine_process(ticks: int) -> None:
    """What a process of its own adds to a prediction."""
    from alpamayo_ros.tools.bench_process import bench_process
    from alpamayo_ros.tools.make_checkpoint import main as make_checkpoint

    with tempfile.TemporaryDirectory() as scratch:
        checkpoint = Path(scratch) / "tiny"
        with contextlib.redirect_stdout(sys.stderr):
            make_checkpoint(["--preset", "tiny", "--out", str(checkpoint)])
        bench_process(report, ticks, list(CAMERAS.values()), str(checkpoint))


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="under load")
    parser.add_argument("--ticks", type=int, default=20, help="of the engine")
    parser.add_argument("--only", choices=["node", "engine", "process"], help="one part alone")
    options = parser.parse_args(arguments)
    use_local_transports()

    def work() -> int:
        if options.only in (None, "node"):
            bench_node(options.seconds)
        if options.only in (None, "engine"):
            bench_engine(options.ticks)
        if options.only in (None, "process"):
            bench_engine_process(options.ticks)
        return 0

    return guarded(work)


if __name__ == "__main__":
    run_command(main)
