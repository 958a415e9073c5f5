"""`make bench-gpu`: what a tick costs on this GPU at full size, stage by stage, beside its floor and NVIDIA's figures.

Four cameras of 1080p; at every tick four new frames, as raw pixels in host memory, and a trajectory in host memory at
the end. The weights are random, so that no checkpoint is needed, and the reasoning is cut after 20 tokens; the pictures
stand still, so that in the case "draft" the last tick's reasoning is confirmed in full: that case is forced, and says
what drafts can save at most. One JSON line per figure goes to --out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alpamayo_ros.core.types import (
    FRAMES_PER_CAMERA,
    HISTORY_LENGTH,
    STEP_NS,
    AlpamayoError,
    EgoPose,
    EngineError,
    Frame,
    Observation,
    Prediction,
    SamplingOptions,
)
from alpamayo_ros.engine.base import Engine
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.model.config import ModelConfig
from alpamayo_ros.model.images import target_size
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import run_command
from alpamayo_ros.tools.gpu_floors import Ceilings, Work

CAMERAS = (0, 1, 2, 6)  # left, front wide, right, front tele
HEIGHT, WIDTH = 1080, 1920
REASONING_TOKENS = 20
PROMPT_TOKENS = 3086  # NVIDIA's prompt for this rig
WARM_UP_TICKS = 3
SPEED = 10.0  # m/s


@dataclass(frozen=True)
class Case:
    """One way to run a tick."""

    options: SamplingOptions
    navigation: str | None = None
    draft: bool = False  # give the last tick's reasoning as draft
    nvidia_ms: float | None = None  # NVIDIA's code on an H200, end to end, with the same work


BASE = SamplingOptions(max_reasoning_tokens=REASONING_TOKENS)
CASES = {
    "1": Case(BASE, nvidia_ms=1449),
    "6": Case(replace(BASE, num_samples=6), nvidia_ms=2389),
    "16": Case(replace(BASE, num_samples=16), nvidia_ms=4473),
    "6 independent": Case(replace(BASE, num_samples=6, reasoning="independent"), nvidia_ms=2389),
    "16 independent": Case(replace(BASE, num_samples=16, reasoning="independent"), nvidia_ms=4473),
    "guided": Case(replace(BASE, guidance_weight=1.5), navigation="Turn left in 30m", nvidia_ms=1993),
    "draft": Case(BASE, draft=True, nvidia_ms=1449),
    "off": Case(replace(BASE, reasoning="off")),
}


def ticks(navigation: str | None, first_serial: int) -> Iterator[Observation]:
    """One observation after the other: four new frames each, of pictures that stand still."""
    pictures = {camera: _picture(camera) for camera in CAMERAS}
    x = np.linspace(-SPEED * (HISTORY_LENGTH - 1) * STEP_NS * 1e-9, 0.0, HISTORY_LENGTH)
    history = np.stack([x, np.zeros_like(x), np.zeros_like(x)], -1)
    number = first_serial
    while True:
        frames = {
            camera: tuple(
                Frame(index * 8 + camera, camera, index * STEP_NS, picture, "rgb8", HEIGHT, WIDTH, 3 * WIDTH)
                for index in range(number, number + FRAMES_PER_CAMERA)
            )
            for camera, picture in pictures.items()
        }
        pose = EgoPose((number + FRAMES_PER_CAMERA - 1) * STEP_NS, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        rotation = np.tile(np.eye(3), (HISTORY_LENGTH, 1, 1))
        yield Observation(pose.stamp_ns, 0, frames, history, rotation, pose, navigation)
        number += 1


def _picture(seed: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    noise = np.random.default_rng(seed).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
    return np.ascontiguousarray(noise.repeat(8, 0).repeat(8, 1))


@dataclass(frozen=True)
class Measured:
    """A case's ticks."""

    name: str
    total_ms: list[float]
    stages_ms: dict[str, list[float]]
    last: Prediction
    peak_gib: float

    def figures(self, case: Case, floor_ms: float | None) -> dict[str, Any]:
        """As a line of --out."""
        median, p99 = (float(np.percentile(self.total_ms, share)) for share in (50, 99))
        stages = {name: round(float(np.median(values)), 2) for name, values in self.stages_ms.items()}
        timings = self.last.timings
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
            "frames_encoded": timings.frames_encoded,
            "reasoning_tokens": len(self.last.reasoning_token_ids[0]),
            "drafts_accepted": self.last.drafts_accepted,
        }


def measure(engine: Engine, name: str, case: Case, count: int, first_serial: int) -> Measured:
    """Run a case's ticks, one after the other."""
    observations = ticks(case.navigation, first_serial)
    total: list[float] = []
    stages: dict[str, list[float]] = {}
    options = case.options
    torch.cuda.reset_peak_memory_stats()
    for number in progress(range(WARM_UP_TICKS + count), desc=name, unit=" ticks"):
        started = time.perf_counter()
        prediction = engine.predict(next(observations), options)
        took = (time.perf_counter() - started) * 1e3
        if case.draft:
            options = replace(options, draft_token_ids=prediction.reasoning_token_ids[0])
        if number >= WARM_UP_TICKS:
            total.append(took)
            for stage, ms in prediction.timings.stages_ms.items():
                stages.setdefault(stage, []).append(ms)
    return Measured(name, total, stages, prediction, torch.cuda.max_memory_allocated() / (1 << 30))


def floor_ms(case: Case, work: Work, ceilings: Ceilings) -> float:
    """Of a whole tick of a case: vision, prefill, a decode step per token, the expert."""
    options, config = case.options, work.config
    height, width = target_size(HEIGHT, WIDTH, config.images)
    size = config.images.patch_size
    patches = (height // size) * (width // size)
    written = 0 if case.draft or options.reasoning == "off" else REASONING_TOKENS + 1
    prefixes = options.num_samples if options.reasoning == "independent" else 1
    passes = 1 if options.guidance_weight in (None, 1) else 2  # the expert also reads the prompt without its route
    tokens = PROMPT_TOKENS + REASONING_TOKENS
    expert = work.expert_ms(
        ceilings, tokens, passes * options.num_samples, passes * prefixes, config.flow.num_inference_steps
    )
    return (
        work.vision_ms(ceilings, len(CAMERAS), patches)
        + work.prefill_ms(ceilings, PROMPT_TOKENS)
        + written * work.decode_ms(ceilings, tokens)
        + expert
    )


def _table(rows: Sequence[dict[str, Any]]) -> str:
    columns = ("case", "median_ms", "p99_ms", "p99/median", "floor_ms", "of_floor", "nvidia/median", "peak_gib")
    stages = list(dict.fromkeys(stage for row in rows for stage in row["stages_ms"]))
    head = (*columns, *stages)
    lines = [head, *((*(row[c] for c in columns), *(row["stages_ms"].get(s) for s in stages)) for row in rows)]
    text = [["-" if value is None else str(value) for value in line] for line in lines]
    widths = [max(len(line[i]) for line in text) for i in range(len(head))]
    return "\n".join("  ".join(value.rjust(width) for value, width in zip(line, widths, strict=True)) for line in text)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.bench_gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", choices=("transformers", "native", "vllm"), default="vllm")
    parser.add_argument("--checkpoint", help="default: random weights of the full size, made on the GPU")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--ticks", type=int, default=30, help="per case, after warm-up (default %(default)s)")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    parser.add_argument("--out", type=Path, help="a file for one JSON line per case")
    options = parser.parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            rows = _run(options, options.checkpoint or _full_size(Path(scratch) / "full"))
    except AlpamayoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(_table(rows))
    return 0


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
        f"{ceilings.bytes * 1e-12:.2f} TB/s copied"
    )
    samples = max(CASES[name].options.num_samples for name in options.cases)
    started = time.perf_counter()
    engine = create_engine(
        options.engine,
        checkpoint,
        process="in_process",
        dtype=options.dtype,
        device="cuda",
        max_cameras=len(CAMERAS),
        max_samples=samples,
    )
    loaded = time.perf_counter()
    engine.warm_up()
    warm = time.perf_counter()
    info = engine.info
    print(
        f"{info.engine}, {info.parameters} parameters in {info.dtype}: loaded in {loaded - started:.1f} s, "
        f"warmed up in {warm - loaded:.1f} s",
        flush=True,
    )
    work = Work.of(ModelConfig.load(checkpoint))
    rows = []
    for number, name in enumerate(options.cases):
        case = CASES[name]
        measured = measure(engine, name, case, options.ticks, first_serial=1 + 100_000 * number)
        row = {"engine": info.engine, "dtype": info.dtype} | measured.figures(case, floor_ms(case, work, ceilings))
        rows.append(row)
        print(json.dumps(row), flush=True)
        if options.out:
            with options.out.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
    engine.close()
    return rows


if __name__ == "__main__":
    run_command(main)
