"""What a process of its own adds to a prediction: four 1080p cameras, one new frame of each per tick."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from alpamayo_ros.core.types import EgoPose, Frame, Observation, SamplingOptions
from alpamayo_ros.engine.factory import create_engine
from alpamayo_ros.engine.process.client import STAGE
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.bench_load import jpeg

HEIGHT, WIDTH = 1080, 1920
Report = Callable[..., None]
_serials = itertools.count(1)


def bench_process(report: Report, ticks: int, cameras: list[int], checkpoint: str) -> None:
    """Report the time that isn't the engine's: with the frames sent at the tick, and with those prepared before it.

    Args:
        report: takes figure, unit and values.
        ticks: per figure.
        cameras: their indices.
        checkpoint: of the transformers engine.
    """
    pictures = {"JPEG": [jpeg(HEIGHT, WIDTH, seed) for seed in cameras], "raw": [_pixels(seed) for seed in cameras]}
    for kind in ("null", "transformers"):
        engine = create_engine(kind, checkpoint, device="cpu", max_cameras=len(cameras), process="subprocess")
        try:
            for encoding, of_cameras in pictures.items():
                for prepared in (False, True):
                    drive = _drive(dict(zip(cameras, of_cameras, strict=True)), encoding)
                    added = _added_ms(engine, drive, ticks, prepared=prepared)
                    sent = "prepared before" if prepared else f"{len(cameras)} new frames sent with it"
                    size = sum(map(len, of_cameras)) / len(of_cameras) / 1e6
                    report(
                        f"engine process, {kind}: added to a prediction, {encoding} of {size:.1f} MB, {sent}",
                        "ms",
                        median=float(np.median(added)),
                        p99=float(np.percentile(added, 99)),
                        n=len(added),
                    )
        finally:
            engine.close()


def _added_ms(engine: Any, drive: Iterator[Observation], ticks: int, *, prepared: bool) -> list[float]:
    options = SamplingOptions(max_reasoning_tokens=4)
    for _ in range(8):  # until the shared memory has its size, and each of its pages was used
        engine.predict(next(drive), options)
    added = []
    for _ in progress(range(ticks), desc=f"{engine.info.engine} in its own process", unit=" ticks"):
        observation = next(drive)
        if prepared:
            for frames in observation.frames.values():
                engine.prepare(frames[-1:])
        added.append(engine.predict(observation, options).timings.stages_ms[STAGE])
    return added


def _drive(pictures: dict[int, bytes], encoding: str) -> Iterator[Observation]:
    """Observations 0.1 s apart: three frames of each camera are those of the tick before."""
    raw: dict[str, Any] = {"encoding": "rgb8", "height": HEIGHT, "width": WIDTH, "step": 3 * WIDTH}
    form: dict[str, Any] = {"encoding": "jpeg"} if encoding == "JPEG" else raw
    history = np.stack([np.linspace(-15.0, 0.0, 16), np.zeros(16), np.zeros(16)], -1)
    pose = EgoPose(4, np.zeros(3), np.array([0.0, 0.0, 0.0, 1.0]))
    rotation = np.tile(np.eye(3), (16, 1, 1))
    windows: dict[int, deque[Frame]] = {camera: deque(maxlen=4) for camera in pictures}
    for tick in itertools.count(1):
        for camera, window in windows.items():
            window.append(Frame(next(_serials), camera, tick, pictures[camera], **form))
        if tick >= 4:
            frames = {camera: tuple(window) for camera, window in windows.items()}
            yield Observation(tick, 0, frames, history, rotation, pose)


def _pixels(seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8).tobytes()
