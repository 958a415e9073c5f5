"""Frames as vLLM takes them: encoded before, and named so that no name ever stands for other pixels.

vLLM doesn't read an image again whose name (`multi_modal_uuids`) it knows. The name is made of the frame's serial and
of a word that is this process's own: a serial is never used again in a process, a stamp might be.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from alpamayo_ros.core.types import Frame
from alpamayo_ros.engine.frame_features import EncodedFrame
from alpamayo_ros.engine.vllm.vision import HostFeatures

_PROCESS = uuid.uuid4().hex[:12]


@dataclass(frozen=True, eq=False)
class Picture:
    """A frame's features in the form of an image, with one pixel per token."""

    name: str
    features: NDArray[np.uint8]  # [rows, columns, bytes of a token's features]; rows * columns stand in the prompt

    @property
    def rows(self) -> int:
        """Of tokens."""
        return self.features.shape[0]

    @property
    def columns(self) -> int:
        """Of tokens."""
        return self.features.shape[1]

    @classmethod
    def of(cls, frame: Frame, encoded: EncodedFrame) -> Picture:
        """A frame that HostVision has encoded; nothing is copied."""
        features = encoded.features
        assert isinstance(features, HostFeatures)
        content = features.joined.view(torch.uint8).view(features.rows, features.columns, -1)
        return cls(f"{_PROCESS}-{frame.serial}", content.numpy())
