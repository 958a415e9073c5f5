"""`make soak`: does the node hold out? Drives it in loops with faults and restarts, and watches what it uses.

The node is a process of its own; camera, odometry and /clock come over DDS, faster than real time. Each loop has
another fault: frames lost, corrupt or of another size, stamps of zero, odometry that is NaN, lost or jumps, a clock
that stops, a reset, disabling, deactivation, and cleaning up with everything loaded anew; and at its end time jumps
back. It fails when memory, file handles or threads grow (a line fitted to the last 80 % of the samples), when the node
ends, or when a loop gives hardly any path.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.stop_signals import stop_on_signals
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.soak.samples import BOUNDS, Sample, growth, leaks, take_sample

ROOT = Path(__file__).parents[3]
SAMPLE_TICKS = 50
LEAST_LOOPS = 3  # fewer give too few samples for a line
LEAST_PATHS = 5  # of a loop's 200 ticks, also for a slow engine on a machine that is busy with other things
SPEED = {"null": 5.0, "tiny": 1.0}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=("null", "tiny"), default="null", help="tiny: a small random checkpoint")
    parser.add_argument("--minutes", type=float, default=2.0, help="of this machine's time")
    parser.add_argument("--speed", type=float, help="of the vehicle's time against this machine's; null 5, tiny 1")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "soak", help="where samples and the log go")
    parser.add_argument("--plant-leak", type=int, default=0, metavar="BYTES", help="leak per tick, to see it found")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when nothing grows, 1 when something does or the node fails."""
    options = build_parser().parse_args(arguments)
    stop = stop_on_signals()
    return guarded(lambda: run(options, stop))


def run(options: argparse.Namespace, stop: threading.Event) -> int:
    """Drive the node, and say what grows; the exit status."""
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        samples = soak(options, Path(scratch), stop)
    if stop.is_set():
        raise AlpamayoError(f"interrupted; the samples so far are in {options.out}")
    found = leaks(samples)
    for bound in BOUNDS:
        print(f"{bound.name}: {growth(samples, bound.name):+.2f} (allowed {bound.allowed(samples):.3g})")
    for leak in found:
        print(f"error: {leak}", file=sys.stderr)
    return 1 if found else 0


def soak(options: argparse.Namespace, scratch: Path, stop: threading.Event) -> list[Sample]:
    """Drive the node for so long, or until `stop` is set; what it used, over time.

    Raises:
        AlpamayoError: the node ended, didn't answer, or gave hardly any path.
    """
    import rclpy

    from alpamayo_ros.tools.soak.traffic import FAULTS, LOOP_TICKS, PARAMETERS, Traffic

    engine = {"engine.kind": "null"}
    if options.engine == "tiny":
        engine = {"engine.kind": "transformers", "engine.checkpoint": _tiny_checkpoint(scratch), "engine.device": "cpu"}
    samples: list[Sample] = []
    end = time.monotonic() + options.minutes * 60
    rclpy.init(args=[], signal_handler_options=rclpy.SignalHandlerOptions.NO)
    traffic = Traffic(options.speed or SPEED[options.engine])
    try:
        with _node(PARAMETERS | engine, options.plant_leak, options.out / f"{options.engine}.log") as process:
            traffic.wait_until_heard()
            loop = ticks = 0
            while not stop.is_set() and (time.monotonic() < end or loop < LEAST_LOOPS):
                fault, before = FAULTS[loop % len(FAULTS)], traffic.paths
                for tick in traffic.drive(fault):
                    if stop.is_set():
                        return samples
                    if (tick + 1) % SAMPLE_TICKS == 0:
                        ticks += SAMPLE_TICKS
                        samples.append(_sample(process, ticks, traffic.latencies_ms))
                loop += 1
                newest, paths = samples[-1], traffic.paths - before
                print(
                    f"{ticks:>7} ticks  {newest.rss_mb:7.1f} MB  {newest.handles:3} handles  {newest.threads:3} threads"
                    f"  {newest.latency_ms:7.2f} ms  {paths:3} paths of {LOOP_TICKS}  {fault}",
                    flush=True,
                )
                if paths < LEAST_PATHS:
                    raise AlpamayoError(f"a loop with the fault {fault!r} gave {paths} paths of {LOOP_TICKS}")
    finally:
        traffic.destroy_node()
        rclpy.shutdown()
        with (options.out / f"{options.engine}.jsonl").open("w") as file:
            file.writelines(json.dumps(asdict(sample)) + "\n" for sample in samples)
    return samples


def _sample(process: subprocess.Popen[bytes], ticks: int, latencies_ms: list[float]) -> Sample:
    if process.poll() is not None:
        raise AlpamayoError(f"the node ended with status {process.returncode}; its log says why")
    latency = median(latencies_ms) if latencies_ms else math.nan
    latencies_ms.clear()
    return take_sample(process.pid, ticks, latency)


def _tiny_checkpoint(folder: Path) -> str:
    from alpamayo_ros.tools.make_checkpoint import make_tiny

    make_tiny(folder / "checkpoint", seed=0)
    return str(folder / "checkpoint")


@contextmanager
def _node(parameters: dict[str, object], leak: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The node as a process; it has to end in order."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "alpamayo_ros.tools.soak.node", str(leak), "--ros-args", *_arguments(parameters)],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={
                "OMP_NUM_THREADS": "1",
                **os.environ,
                "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            },
        )
        try:
            yield process
            process.send_signal(signal.SIGINT)
            status = process.wait(10)
            if status:
                raise AlpamayoError(f"the node ended with status {status} instead of 0; {log} says why")
        finally:
            process.kill()
            process.wait()


def _arguments(parameters: dict[str, object]) -> Sequence[str]:
    return [word for name, value in parameters.items() for word in ("-p", f"{name}:={json.dumps(value)}")]


if __name__ == "__main__":
    run_command(main)
