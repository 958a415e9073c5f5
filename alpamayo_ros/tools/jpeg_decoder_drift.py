"""How far nvJPEG's pixels take the native engine's answers from those by OpenCV's, on held-out ticks.

The synthetic world's pictures become JPEG files, and the same files go through an engine with either decoder: how far
pixels, logits and paths are apart, the paths at the same words and noise, whether it writes the same, and the scores of
both. Needs a CUDA device, and a torchvision with nvJPEG.

The small checkpoint sees pictures of at most 160 x 96 pixels; the default size is as much larger than that as 1080p is
than what the model of full size sees.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from alpamayo_ros.core.types import ConfigurationError, EngineError, Frame
from alpamayo_ros.engine.device import resolve_device
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs
from alpamayo_ros.sensors.decode import decode
from alpamayo_ros.tools.answer_drift import answers_by, drift, scores_of, tell
from alpamayo_ros.tools.command import guarded, run_command
from alpamayo_ros.tools.mini_scores import HeldOutTick, held_out_ticks
from alpamayo_ros.tools.train_mini import record_held_out

OPENCV, NVJPEG = "opencv", "nvjpeg"


def with_jpegs(ticks: Sequence[HeldOutTick], quality: int) -> list[HeldOutTick]:
    """The same ticks with JPEG files in place of raw pictures; a frame that several ticks share stays one."""
    files: dict[int, Frame] = {}
    for tick in ticks:
        for frames in tick.observation.frames.values():
            for frame in frames:
                if frame.serial not in files:
                    files[frame.serial] = _as_jpeg(frame, quality)
    return [
        replace(tick, observation=replace(tick.observation, frames=_exchanged(tick.observation.frames, files)))
        for tick in ticks
    ]


def pixels_apart(frames: Sequence[Frame], jpegs: GpuJpegs) -> dict[str, float]:
    """How far the decoders' pictures are apart, in levels of 255: in the mean, and at worst.

    Raises:
        EngineError: a file that the device can't read.
    """
    means, worst = [], 0
    for frame in frames:
        (picture,) = jpegs.decode([frame])
        if picture is None:
            raise EngineError(f"nvJPEG can't read a picture of camera {frame.camera}, stamp {frame.stamp_ns} ns")
        apart = np.abs(picture.cpu().numpy().astype(int) - decode(frame))
        means.append(float(apart.mean()))
        worst = max(worst, int(apart.max()))
    return {"pixels_apart_mean": float(np.mean(means)), "pixels_apart_worst": worst}


def _as_jpeg(frame: Frame, quality: int) -> Frame:
    pixels = np.asarray(frame.data).reshape(frame.height, frame.width, 3)
    data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return Frame(frame.serial, frame.camera, frame.stamp_ns, data.tobytes(), "jpeg")


def _exchanged(frames: Mapping[int, Sequence[Frame]], files: Mapping[int, Frame]) -> dict[int, tuple[Frame, ...]]:
    return {camera: tuple(files[frame.serial] for frame in some) for camera, some in frames.items()}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.jpeg_decoder_drift",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--checkpoint", default="mini", help="a folder or Hugging Face name (default: %(default)s)")
    add("--device", default="auto", help="auto, cuda or cuda:N (default: %(default)s)")
    add("--dtype", default="auto", help="of the weights (default: %(default)s)")
    add("--drives", type=int, default=4, help="held-out drives (default: %(default)s)")
    add("--seconds", type=float, default=12.0, help="of each (default: %(default)s)")
    add("--every", type=int, default=20, help="of their ticks, one in so many (default: %(default)s)")
    add("--size", type=int, nargs=2, default=[528, 320], metavar=("WIDTH", "HEIGHT"), help="pixels (default 528 320)")
    add("--quality", type=int, default=90, help="of the JPEG files, 1 to 100 (default: %(default)s)")
    cores = max((os.cpu_count() or 2) - 1, 1)
    add("--workers", type=int, default=cores, help="that record drives (default: %(default)s)")
    add("--out", type=Path, metavar="FILE", help="a file for the figures as JSON")
    options = parser.parse_args(arguments)
    return guarded(lambda: _work(options))


def _work(options: argparse.Namespace) -> int:
    if not 1 <= options.quality <= 100:
        raise ConfigurationError(f"--quality {options.quality}: expected 1 to 100")
    jpegs = GpuJpegs.on(resolve_device(options.device))  # which is refused, if at all, before drives are recorded
    width, height = options.size
    drives = record_held_out(options.drives, options.seconds, options.workers, (height, width))
    ticks = with_jpegs(held_out_ticks(drives, options.every), options.quality)
    if not ticks:
        raise ConfigurationError(f"--seconds {options.seconds:g}: no tick with a whole history before it")
    del drives
    opencv, nvjpeg = (
        answers_by(options.checkpoint, ticks, decoder, device=options.device, dtype=options.dtype, jpeg_decoder=decoder)
        for decoder in (OPENCV, NVJPEG)
    )
    newest = [frames[-1] for tick in ticks for frames in tick.observation.frames.values()]
    figures = {
        "size": options.size,
        "quality": options.quality,
        **pixels_apart(newest, jpegs),
        **drift(opencv, nvjpeg),
        OPENCV: scores_of(opencv),
        NVJPEG: scores_of(nvjpeg),
    }
    tell(figures, options.out)
    return 0


if __name__ == "__main__":
    run_command(main)
