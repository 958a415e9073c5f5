"""Frames' bytes to pictures where an engine works, several side by side."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine.gpu_jpegs import GpuJpegs
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.images import ImageConfig, target_size
from alpamayo_ros.sensors.decode import decode

DECODERS = 8  # threads; decoding leaves Python's lock to others
Picture = Tensor | BadImageError  # RGB uint8 [H, W, 3] on the engine's device, or why there is none


class FrameDecoder:
    """Decodes on the host, or JPEG files on a GPU.

    For a GPU a picture is decoded into memory that this reads by itself, and copied to it as soon as it is there, on a
    stream and into memory of that stream.

    Args:
        images: Which sizes the model takes.
        device: The engine's.
        jpegs: None: every picture is decoded on the host.
    """

    def __init__(self, images: ImageConfig, device: torch.device, jpegs: GpuJpegs | None) -> None:
        self._images = images
        self._device = device
        self._jpegs = jpegs
        self._threads = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
        self._uploads = torch.cuda.Stream(device) if device.type == "cuda" else None

    def takes_on_device(self, frame: Frame) -> bool:
        """Whether a frame is for `on_device`."""
        return self._jpegs is not None and self._jpegs.takes(frame)

    def on_host(self, frames: Sequence[Frame], clock: StageClock) -> list[Picture]:
        """Decode side by side. A GPU may still be copying them: see `let_wait`."""
        if not frames:
            return []
        with clock.host_stage("decode"):
            decoding = [self._threads.submit(self._decode, frame) for frame in frames]
            wait(decoding)  # for all, whatever becomes of one: their data are there no longer than this call
        return [_picture_or_error(decoded.result) for decoded in decoding]

    def on_device(self, frames: Sequence[Frame], clock: StageClock) -> list[Picture]:
        """Decode JPEG files together; what the device can't read is decoded on the host, or refused there."""
        if self._jpegs is None or not frames:
            return []
        with clock.stage("decode"):
            read = self._jpegs.decode(frames)
        unread = [frame for frame, picture in zip(frames, read, strict=True) if picture is None]
        others = iter(self.on_host(unread, clock))
        return [
            next(others) if picture is None else _picture_or_error(partial(self._fitting, frame, picture))
            for frame, picture in zip(frames, read, strict=True)
        ]

    def let_wait(self, stream: torch.cuda.Stream) -> None:
        """Let a stream wait for what was decoded on the host so far."""
        if self._uploads is not None:
            stream.wait_stream(self._uploads)

    def _decode(self, frame: Frame) -> Tensor:
        if self._uploads is None:
            return self._fitting(frame, torch.from_numpy(decode(frame)))
        pinned = []  # PyTorch gives this memory again when the copies from it are done

        def room(height: int, width: int) -> NDArray[np.uint8]:
            pinned.append(torch.empty(height, width, 3, dtype=torch.uint8, pin_memory=True))
            return pinned[-1].numpy()

        decode(frame, room)
        picture = self._fitting(frame, pinned[-1])
        with torch.cuda.stream(self._uploads):
            return picture.to(self._device, non_blocking=True)

    def _fitting(self, frame: Frame, picture: Tensor) -> Tensor:
        """The frame's picture. Raises BadImageError where the model can't take its size."""
        height, width, _ = picture.shape
        try:
            target_size(height, width, self._images)
        except BadImageError as error:
            message = f"camera {frame.camera}, stamp {frame.stamp_ns} ns: {error}"
            raise BadImageError(message, frame.serial) from error
        return picture


def let_go_of_data(error: BaseException | None) -> None:
    """Clear the local variables of what has failed: another thread may hold the error beyond this call."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _picture_or_error(picture: Callable[[], Tensor]) -> Picture:
    try:
        return picture()
    except BadImageError as error:
        let_go_of_data(error)
        return error
