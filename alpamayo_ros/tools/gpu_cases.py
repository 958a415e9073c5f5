"""The ticks that `bench_gpu` runs, and the floor of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from alpamayo_ros.core.types import (
    FRAMES_PER_CAMERA,
    HISTORY_LENGTH,
    STEP_NS,
    EgoPose,
    Frame,
    Observation,
    SamplingOptions,
)
from alpamayo_ros.model.images import target_size
from alpamayo_ros.tools.bench_load import jpeg
from alpamayo_ros.tools.gpu_floors import Ceilings, Work

CAMERAS = (0, 1, 2, 6)  # left, front wide, right, front tele
HEIGHT, WIDTH = 1080, 1920
REASONING_TOKENS = 20
PROMPT_TOKENS = 3086  # NVIDIA's prompt for this rig
SPEED = 10.0  # m/s


@dataclass(frozen=True)
class Case:
    """One way to run a tick."""

    options: SamplingOptions
    navigation: str | None = None
    draft: bool = False  # give the last tick's reasoning as draft
    prepared: bool = False  # new frames are given to the engine before the tick, as the node does when they arrive
    beside: int = 0  # points of the lattice that come, and are prepared, while a tick runs: the next one's newest
    jpegs: bool = False  # frames come as JPEG files instead of raw pixels
    nvidia_ms: float | None = None  # NVIDIA's code on an H200, end to end, with the same work


BASE = SamplingOptions(max_reasoning_tokens=REASONING_TOKENS)
GUIDED = replace(BASE, guidance_weight=1.5)
ROUTE = "Turn left in 30m"
CASES = {
    "1": Case(BASE, nvidia_ms=1449),
    "6": Case(replace(BASE, num_samples=6), nvidia_ms=2389),
    "16": Case(replace(BASE, num_samples=16), nvidia_ms=4473),
    "6 independent": Case(replace(BASE, num_samples=6, reasoning="independent"), nvidia_ms=2389),
    "16 independent": Case(replace(BASE, num_samples=16, reasoning="independent"), nvidia_ms=4473),
    "guided": Case(GUIDED, navigation=ROUTE, nvidia_ms=1993),
    "draft": Case(BASE, draft=True, nvidia_ms=1449),
    "prepared": Case(BASE, prepared=True, nvidia_ms=1449),
    "draft prepared": Case(BASE, draft=True, prepared=True, nvidia_ms=1449),
    "prepared beside": Case(BASE, prepared=True, beside=2, nvidia_ms=1449),
    "16 prepared": Case(replace(BASE, num_samples=16), prepared=True, nvidia_ms=4473),
    "guided prepared": Case(GUIDED, navigation=ROUTE, prepared=True, nvidia_ms=1993),
    "guided draft": Case(GUIDED, navigation=ROUTE, draft=True, nvidia_ms=1993),
    "off": Case(replace(BASE, reasoning="off")),
    "jpeg": Case(BASE, jpegs=True),
}


def ticks(case: Case, first_serial: int) -> Iterator[Observation]:
    """One observation after the other, of pictures that stand still: four new frames each, or what came beside."""
    pictures = {camera: _jpeg(camera) if case.jpegs else _raw(camera) for camera in CAMERAS}
    x = np.linspace(-SPEED * (HISTORY_LENGTH - 1) * STEP_NS * 1e-9, 0.0, HISTORY_LENGTH)
    history = np.stack([x, np.zeros_like(x), np.zeros_like(x)], -1)
    number = first_serial
    while True:
        frames = {
            camera: tuple(
                Frame(index * 8 + camera, camera, index * STEP_NS, **picture)
                for index in range(number, number + FRAMES_PER_CAMERA)
            )
            for camera, picture in pictures.items()
        }
        pose = EgoPose((number + FRAMES_PER_CAMERA - 1) * STEP_NS, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
        rotation = np.tile(np.eye(3), (HISTORY_LENGTH, 1, 1))
        yield Observation(pose.stamp_ns, 0, frames, history, rotation, pose, case.navigation)
        number += max(1, case.beside)


def _raw(seed: int) -> dict[str, Any]:
    """A picture as a frame's data and what describes it: pixels, as a raw camera sends them."""
    noise = np.random.default_rng(seed).integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
    pixels = np.ascontiguousarray(noise.repeat(8, 0).repeat(8, 1))
    return {"data": pixels, "encoding": "rgb8", "height": HEIGHT, "width": WIDTH, "step": 3 * WIDTH}


def _jpeg(seed: int) -> dict[str, Any]:
    """The same of a JPEG file of 0.4 MB."""
    return {"data": jpeg(HEIGHT, WIDTH, seed), "encoding": "jpeg"}


def floors_ms(case: Case, work: Work, ceilings: Ceilings, quantization: str = "none") -> dict[str, float]:
    """The floor of every stage of a case: vision, prefill, a decode step per token, the expert."""
    fp8, fp8_expert = quantization != "none", quantization == "fp8_expert"
    options, config = case.options, work.config
    height, width = target_size(HEIGHT, WIDTH, config.images)
    size = config.images.patch_size
    patches = (height // size) * (width // size)
    written = 0 if case.draft or options.reasoning == "off" else REASONING_TOKENS + 1
    prefixes = options.num_samples if options.reasoning == "independent" else 1
    passes = 1 if options.guidance_weight in (None, 1) else 2  # the expert also reads the prompt without its route
    tokens = PROMPT_TOKENS + REASONING_TOKENS
    return {
        "vision": 0.0 if case.prepared else work.vision_ms(ceilings, len(CAMERAS), patches),
        "prefill": work.prefill_ms(ceilings, PROMPT_TOKENS, fp8),
        "reasoning": written * work.decode_ms(ceilings, tokens, fp8),
        "expert": work.expert_ms(
            ceilings,
            tokens,
            passes * options.num_samples,
            passes * prefixes,
            config.flow.num_inference_steps,
            fp8_expert,
        ),
    }
