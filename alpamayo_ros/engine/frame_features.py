"""Frames to the vision tower's features, each once: what was encoded is kept under the frame's serial number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine.resident_model import VisionModel
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.backbone import ImageFeatures
from alpamayo_ros.model.images import ImageConfig, preprocess, target_size
from alpamayo_ros.sensors.decode import decode

DECODERS = 4  # threads; decoding leaves Python's lock to others


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame's features, and the size of the picture that they came from."""

    features: ImageFeatures
    height: int  # pixels, before the resize
    width: int


class FrameFeatures:
    """The newest `capacity` frames' features."""

    def __init__(self, vision: VisionModel, images: ImageConfig, device: torch.device, capacity: int) -> None:
        self._vision = vision
        self._images = images
        self._device = device
        self._capacity = capacity
        self._kept: OrderedDict[int, EncodedFrame] = OrderedDict()  # by serial, the one used last at the end
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")

    def __len__(self) -> int:
        return len(self._kept)

    def missing(self, frames: Sequence[Frame]) -> list[Frame]:
        """Those that haven't been encoded, or not lately."""
        return [frame for frame in frames if frame.serial not in self._kept]

    def get(self, frames: Sequence[Frame], clock: StageClock) -> list[EncodedFrame]:
        """The features of these frames; what is missing is decoded and encoded.

        Raises:
            BadImageError: a frame can't be decoded or has a size that the model can't take.
        """
        missing = self.missing(frames)
        if missing:
            encoded = self._encode(missing, clock)
            self._kept.update(zip((frame.serial for frame in missing), encoded, strict=True))
        found = []
        for frame in frames:
            self._kept.move_to_end(frame.serial)
            found.append(self._kept[frame.serial])
        while len(self._kept) > max(self._capacity, len(frames)):
            self._kept.popitem(last=False)
        return found

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()

    def _encode(self, frames: Sequence[Frame], clock: StageClock) -> list[EncodedFrame]:
        """Decode them side by side, and encode them."""
        with clock.stage("decode"):
            pictures = list(self._decoders.map(self._decode, frames))
        for frame, picture in zip(frames, pictures, strict=True):
            self._check_size(frame, *picture.shape[:2])
        with clock.stage("preprocess"):
            patches = [preprocess([picture], self._images, self._device) for picture in pictures]
        with clock.stage("vision"):
            features = self._vision.encode_each(patches)
        return [EncodedFrame(each, *picture.shape[:2]) for each, picture in zip(features, pictures, strict=True)]

    def _decode(self, frame: Frame) -> Tensor:
        """RGB uint8 [H, W, 3] on the host, for a GPU in memory that it reads by itself."""
        picture = torch.from_numpy(np.ascontiguousarray(decode(frame)))
        return picture.pin_memory() if self._device.type == "cuda" else picture

    def _check_size(self, frame: Frame, height: int, width: int) -> None:
        try:
            target_size(height, width, self._images)
        except BadImageError as error:
            message = f"camera {frame.camera}, stamp {frame.stamp_ns} ns: {error}"
            raise BadImageError(message, frame.serial) from error
