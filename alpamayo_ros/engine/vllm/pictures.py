"""Frames as vLLM takes them: decoded once, and named so that no name ever stands for other pixels.

vLLM neither preprocesses nor encodes an image again whose name (`multi_modal_uuids`) it knows. The name is made of the
frame's serial and of a word that is this process's own: a serial is never used again in a process, a stamp might be.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.images import ImageConfig, target_size
from alpamayo_ros.sensors.decode import decode

DECODERS = 8  # threads; decoding leaves Python's lock to others, and the engine has nothing else to do meanwhile
_PROCESS = uuid.uuid4().hex[:12]


@dataclass(frozen=True, eq=False)
class Picture:
    """A decoded frame."""

    name: str
    pixels: NDArray[np.uint8]  # [H, W, 3]
    rows: int  # of tokens after the resize; rows * columns stand in the prompt
    columns: int

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels, before the resize."""
        return self.pixels.shape[0], self.pixels.shape[1]


class Pictures:
    """The newest `capacity` frames, decoded."""

    def __init__(self, images: ImageConfig, capacity: int) -> None:
        self._images = images
        self._capacity = capacity
        self._kept: OrderedDict[int, Picture] = OrderedDict()  # by serial, the one used last at the end
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, frames: Sequence[Frame], clock: StageClock) -> list[Picture]:
        """The pictures of these frames; what is missing is decoded, side by side.

        Raises:
            BadImageError: a frame can't be decoded or has a size that the model can't take.
        """
        missing = self.missing(frames)
        if missing:
            with clock.host_stage("decode"):
                decoding = [self._decoders.submit(self._decode, frame) for frame in missing]
                wait(decoding)  # for all, also when one is bad: their data are there no longer than this call
            for frame, picture in zip(missing, decoding, strict=True):
                self._kept[frame.serial] = picture.result()
        for frame in frames:
            self._kept.move_to_end(frame.serial)
        found = [self._kept[frame.serial] for frame in frames]
        while len(self._kept) > max(self._capacity, len(frames)):
            self._kept.popitem(last=False)
        return found

    def missing(self, frames: Sequence[Frame]) -> list[Frame]:
        """Those that haven't been seen lately."""
        return [frame for frame in frames if frame.serial not in self._kept]

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def _decode(self, frame: Frame) -> Picture:
        pixels = decode(frame)
        try:
            height, width = target_size(pixels.shape[0], pixels.shape[1], self._images)
        except BadImageError as error:
            message = f"camera {frame.camera}, stamp {frame.stamp_ns} ns: {error}"
            raise BadImageError(message, frame.serial) from error
        factor = self._images.factor
        return Picture(f"{_PROCESS}-{frame.serial}", pixels, height // factor, width // factor)
