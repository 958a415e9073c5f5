"""Frames to the vision tower's features, each once: what was encoded is kept under the frame's serial number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.engine.resident_model import VisionModel
from alpamayo_ros.engine.stage_clock import StageClock
from alpamayo_ros.model.backbone import ImageFeatures
from alpamayo_ros.model.images import ImageConfig, preprocess, target_size
from alpamayo_ros.sensors.decode import decode


@dataclass(frozen=True, eq=False)
class EncodedFrame:
    """A frame's features, and the size of the picture that they came from."""

    features: ImageFeatures
    height: int  # pixels, before the resize
    width: int


class FrameFeatures:
    """The newest `capacity` frames' features."""

    def __init__(self, backbone: VisionModel, images: ImageConfig, device: torch.device, capacity: int) -> None:
        self._backbone = backbone
        self._images = images
        self._device = device
        self._capacity = capacity
        self._kept: OrderedDict[int, EncodedFrame] = OrderedDict()  # by serial, the one used last at the end

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
        for frame in self.missing(frames):
            self._kept[frame.serial] = self._encode(frame, clock)
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

    def _encode(self, frame: Frame, clock: StageClock) -> EncodedFrame:
        """One frame alone: in a batch its features would round differently with each company it is in."""
        with clock.stage("decode"):
            picture = decode(frame)
        height, width = picture.shape[:2]
        self._check_size(frame, height, width)
        with clock.stage("preprocess"):
            patches = preprocess([picture], self._images, self._device)
        with clock.stage("vision"):
            features = self._backbone.encode(patches)[0]
        return EncodedFrame(features, height, width)

    def _check_size(self, frame: Frame, height: int, width: int) -> None:
        try:
            target_size(height, width, self._images)
        except BadImageError as error:
            message = f"camera {frame.camera}, stamp {frame.stamp_ns} ns: {error}"
            raise BadImageError(message, frame.serial) from error
