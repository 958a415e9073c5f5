"""`make bench-gpu`: what a tick costs on this GPU at full size, stage by stage, beside its floor and NVIDIA's figures.

Four cameras of 1080p; at every tick four new frames, as raw pixels in host memory, and a trajectory in host memory at
the end; in the case "jpeg" they are JPEG files. The weights are random, so that no checkpoint is needed, and the
reasoning is cut after 20 tokens; the pictures stand still, so that in the case "draft" the last tick's reasoning is
confirmed in full: that case is forced, and says what drafts can save at most. One JSON line per figure goes to --out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alpamayo_ros.core.types import AlpamayoError, EngineError, Frame, Observation, Prediction
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import KINDS, QUANTIZATIONS, create_engine
from alpamayo_ros.engine.gpu_jpegs import JPEG_DECODERS
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import run_command
from alpamayo_ros.tools.gpu_cases import CAMERAS, CASES, Case, floors_ms, ticks
from alpamayo_ros.tools.gpu_floors import Ceilings, Work

WARM_UP_TICKS = 3
BESIDE_TICKS = 5


@dataclass(frozen=True)
class Measured:
    """A case's ticks."""

    name: str
    total_ms: list[float]
    stages_ms: dict[str, list[float]]
    last: Prediction
    peak_gib: float

    def figures(self, case: Case, floors: Mapping[str, float]) -> dict[str, Any]:
        """As a line of --out; `floors` in ms by stage, or none."""
        median, p99 = (float(np.percentile(self.total_ms, share)) for share in (50, 99))
        stages = {name: round(float(np.median(values)), 2) for name, values in self.stages_ms.items()}
        timings = self.last.timings
        floor_ms = sum(floors.values()) or None
        return {
            "case": self.name,
            "ticks": len(self.total_ms),
            "median_ms": round(median, 1),
            "p99_ms": round(p99, 1),
            "p99/median": round(p99 / median, 2),
            "floor_ms": None if floor_ms is None else round(floor_ms, 1),
            "of_floor": None if floor_ms is None else round(median / floor_ms, 2),
            "nvidia/median": None if case.nvidia_ms is None else round(case.nvidia_ms / median, 1),
            "peak_gib": round(self.peak_gib, 1),
            "stages_ms": stages,
            "stages_of_floor": _of_floor(stages, floors),
            "frames_encoded": timings.frames_encoded,
            "reasoning_tokens": len(self.last.reasoning_token_ids[0]),
            "drafts_accepted": self.last.drafts_accepted,
        }


def _of_floor(stages: Mapping[str, float], floors: Mapping[str, float]) -> dict[str, float]:
    """Each stage as a multiple of its floor; an engine without a vision stage does that in its prefill."""
    least = dict(floors)
    if "vision" not in stages and "prefill" in least:
        least["prefill"] += least.pop("vision")
    return {name: round(stages[name] / ms, 2) for name, ms in least.items() if name in stages and ms > 0}


def measure(engine: Engine, name: str, case: Case, count: int, first_serial: int) -> Measured:
    """Run a case's ticks, one after the other."""
    observations = ticks(case, first_serial)
    total: list[float] = []
    stages: dict[str, list[float]] = {}
    options = case.options
    torch.cuda.reset_peak_memory_stats()
    observation = next(observations)
    with ThreadPoolExecutor(1, "prepare") as beside:
        for number in progress(range(WARM_UP_TICKS + count), desc=name, unit=" ticks"):
            then = next(observations)
            if case.prepared:
                engine.prepare([frames[-1] for frames in observation.frames.values()])
                torch.cuda.synchronize()
            started = time.perf_counter()
            preparing = [beside.submit(engine.prepare, frames) for frames in arriving(then, case.beside)]
            prediction = engine.predict(observation, options)
            took = (time.perf_counter() - started) * 1e3
            for each in preparing:
                each.result()
            observation = then
            if case.draft:
                options = replace(options, draft_token_ids=prediction.reasoning_token_ids[0])
            if number >= WARM_UP_TICKS:
                total.append(took)
                for stage, ms in prediction.timings.stages_ms.items():
                    stages.setdefault(stage, []).append(ms)
    return Measured(name, total, stages, prediction, torch.cuda.max_memory_allocated() / (1 << 30))


def arriving(observation: Observation, points: int) -> Iterator[list[Frame]]:
    """The frames of an observation's last points of the lattice, point by point."""
    for back in range(points, 0, -1):
        yield [frames[-back] for frames in observation.frames.values()]


def _table(rows: Sequence[dict[str, Any]]) -> str:
    columns = (
        "engine",
        "case",
        "median_ms",
        "p99_ms",
        "p99/median",
        "floor_ms",
        "of_floor",
        "nvidia/median",
        "peak_gib",
    )
    stages = list(dict.fromkeys(stage for row in rows for stage in row["stages_ms"]))
    head = (*columns, *stages)
    lines = [head, *((*(row[c] for c in columns), *(_stage(row, stage) for stage in stages)) for row in rows)]
    text = [["-" if value is None else str(value) for value in line] for line in lines]
    widths = [max(len(line[i]) for line in text) for i in range(len(head))]
    return "\n".join("  ".join(value.rjust(width) for value, width in zip(line, widths, strict=True)) for line in text)


def _stage(row: Mapping[str, Any], stage: str) -> str | None:
    ms, of_floor = row["stages_ms"].get(stage), row["stages_of_floor"].get(stage)
    return ms if ms is None or of_floor is None else f"{ms} ({of_floor})"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.bench_gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=[kind for kind in KINDS if kind != "null"], default="native")
    parser.add_argument("--checkpoint", help="default: random weights of the full size, made on the GPU")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        default="none",
        help="fp8: the backbone's layers in FP8; quantization_drift says how far its answers are from exact ones",
    )
    parser.add_argument("--jpeg-decoder", choices=JPEG_DECODERS, default="opencv", help='for the case "jpeg"')
    parser.add_argument("--ticks", type=int, default=30, help="per case, after warm-up (default %(default)s)")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument(
        "--beside", default="transformers", choices=("transformers", "none"), help="engine for the ratio, case 1 alone"
    )
    parser.add_argument("--out", type=Path, help="a file for one JSON line per case")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            checkpoint = options.checkpoint or _full_size(Path(scratch) / "full")
            rows = _run(options, checkpoint)
            if options.beside not in ("none", options.engine):
                rows += _beside(options, checkpoint, Path(scratch) / "beside")
    except AlpamayoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("stages in ms, and as multiples of their floors:")
    print(_table(rows))
    for row in rows[len(options.cases) :]:
        print(f"{row['engine']} / {options.engine}, case {row['case']}: {row['median_ms'] / rows[0]['median_ms']:.1f}")
    return 0


def _beside(options: argparse.Namespace, checkpoint: str, out: Path) -> list[dict[str, Any]]:
    """The first case by another engine, in a process of its own: an engine may leave the device's memory in pieces."""
    command = [sys.executable, "-m", "alpamayo_ros.tools.bench_gpu", "--engine", options.beside, "--beside", "none"]
    command += ["--checkpoint", checkpoint, "--dtype", options.dtype, "--ticks", str(BESIDE_TICKS)]
    command += ["--cases", options.cases[0], "--out", str(out)]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        raise EngineError(f"the {options.beside} engine failed; {' '.join(command)} says why")
    return [json.loads(line) for line in out.read_text().splitlines()]


def _full_size(folder: Path) -> str:
    from alpamayo_ros.tools.make_checkpoint import main as make_checkpoint

    with redirect_stdout(sys.stderr):
        make_checkpoint(["--preset", "full", "--shapes-only", "--out", str(folder)])
    return str(folder)


def _run(options: argparse.Namespace, checkpoint: str) -> list[dict[str, Any]]:
    if not torch.cuda.is_available():
        raise EngineError("there is no CUDA device; `make bench` measures what a CPU can show")
    ceilings = Ceilings.measure(torch.device("cuda"))
    torch.cuda.empty_cache()
    print(
        f"{torch.cuda.get_device_name()}: {ceilings.flops * 1e-12:.0f} TFLOP/s in bfloat16, "
        f"{ceilings.fp8_flops * 1e-12:.0f} in FP8, {ceilings.bytes * 1e-12:.2f} TB/s copied"
    )
    samples = max(CASES[name].options.num_samples for name in options.cases)
    started = time.perf_counter()
    engine = create_engine(
        options.engine,
        checkpoint,
        process="in_process",
        dtype=options.dtype,
        quantization=options.quantization,
        jpeg_decoder=options.jpeg_decoder,
        device="cuda",
        max_cameras=len(CAMERAS),
        max_samples=samples,
    )
    loaded = time.perf_counter()
    engine.warm_up()
    warm = time.perf_counter()
    info = engine.info
    print(
        f"{info.engine}, {info.parameters} parameters in {info.dtype}, quantization {info.quantization}: "
        f"loaded in {loaded - started:.1f} s, warmed up in {warm - loaded:.1f} s",
        flush=True,
    )
    work = Work.of(ModelConfig.load(checkpoint))
    rows = []
    for number, name in enumerate(options.cases):
        case = CASES[name]
        measured = measure(engine, name, case, options.ticks, first_serial=1 + 100_000 * number)
        row = {"engine": info.engine, "dtype": info.dtype, "quantization": info.quantization}
        row |= measured.figures(case, floors_ms(case, work, ceilings, info.quantization))
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.out:
            with options.out.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
    engine.close()
    return rows


if __name__ == "__main__":
    run_command(main)
