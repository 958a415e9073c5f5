"""Vision features by frame, so that a frame is decoded and encoded once however many ticks it is part of."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from alpamayo_ros.core.types import AlpamayoError, BadImageError, Frame
from alpamayo_ros.model.backbone import Backbone, ImageFeatures
from alpamayo_ros.model.images import ImageConfig, preprocess
from alpamayo_ros.sensors.decode import decode


@dataclass
class EncodingCost:
    """What looking at frames cost."""

    stages_ms: dict[str, float] = field(default_factory=lambda: {"decode": 0.0, "preprocess": 0.0, "vision": 0.0})
    encoded: int = 0
    reused: int = 0

    def add(self, stage: str, started: float) -> float:
        """Count the time since `started` for a stage; returns now."""
        now = time.monotonic()
        self.stages_ms[stage] += (now - started) * 1e3
        return now


class FrameCache:
    """The features of the newest frames, by serial number: a stamp can come twice with other pixels.

    Args:
        backbone: encodes.
        config: of the images.
        capacity: frames that are kept.
        synchronise: waits for the device, so that times are those of the work.
    """

    def __init__(self, backbone: Backbone, config: ImageConfig, capacity: int, synchronise: Callable[[], None]) -> None:
        self._backbone = backbone
        self._config = config
        self._capacity = capacity
        self._synchronise = synchronise
        self._features: OrderedDict[int, tuple[ImageFeatures, tuple[int, int]]] = OrderedDict()

    def encode(self, frames: Sequence[Frame], cost: EncodingCost) -> list[ImageFeatures]:
        """Features of frames of one camera, in their order.

        Raises:
            BadImageError: a frame can't be decoded, or has another size than the others.
        """
        looked_at = [self._encode(frame, cost) for frame in frames]
        sizes = {size for _, size in looked_at}
        if len(sizes) > 1:
            listed = ", ".join(f"{width}x{height}" for height, width in sorted(sizes))
            raise BadImageError(f"camera {frames[0].camera} sent images of {listed} in one tick; all have to be alike")
        return [features for features, _ in looked_at]

    def prepare(self, frames: Sequence[Frame]) -> None:
        """Encode early. A frame that can't be decoded is left for the tick that needs it to name it."""
        for frame in frames:
            try:
                self._encode(frame, EncodingCost())
            except AlpamayoError:
                continue

    def clear(self) -> None:
        """Forget everything."""
        self._features.clear()

    def _encode(self, frame: Frame, cost: EncodingCost) -> tuple[ImageFeatures, tuple[int, int]]:
        known = self._features.get(frame.serial)
        if known is not None:
            self._features.move_to_end(frame.serial)
            cost.reused += 1
            return known
        started = time.monotonic()
        image = decode(frame)
        started = cost.add("decode", started)
        patches = preprocess([image], self._config, self._backbone.device)
        self._synchronise()
        started = cost.add("preprocess", started)
        with torch.inference_mode():
            features = self._backbone.encode(patches)[0]
        self._synchronise()
        cost.add("vision", started)
        cost.encoded += 1
        known = features, (image.shape[0], image.shape[1])
        self._features[frame.serial] = known
        while len(self._features) > self._capacity:
            self._features.popitem(last=False)
        return known
