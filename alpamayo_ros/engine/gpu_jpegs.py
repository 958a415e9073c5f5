"""JPEG files to pixels by nvJPEG, on the GPU that encodes them.

Its pixels are not those of OpenCV, which decodes everywhere else: both keep to the standard, which leaves open how
colours of half the resolution are spread. So it has to be asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import cv2
import numpy as np
import torch
from torch import Tensor

from alpamayo_ros.core.types import BadImageError, ConfigurationError, EngineError, Frame
from alpamayo_ros.engine.base import LoadOptions
from alpamayo_ros.sensors.compressed import JPEG_START
from alpamayo_ros.sensors.decode import frame_size

logger = logging.getLogger(__name__)

JPEG_DECODERS = ("opencv", "nvjpeg")
DecodeFiles = Callable[[list[Tensor]], list[Tensor]]  # bytes [n] on the host to RGB [3, H, W] on the device, each


class GpuJpegs:
    """Decodes whole JPEG files, several at a time.

    Args:
        decode_files: raises RuntimeError when it can't read one of them.
    """

    def __init__(self, decode_files: DecodeFiles) -> None:
        self._decode_files = decode_files
        self._unreadable: set[int] = set()  # cameras whose last file nvJPEG couldn't read
        self._said: set[int] = set()  # cameras of which it was said that nvJPEG can't read them

    @classmethod
    def on(cls, device: torch.device) -> GpuJpegs:
        """By torchvision, which has nvJPEG.

        Raises:
            EngineError: the device isn't CUDA, or torchvision isn't there or was built without CUDA.
        """
        if device.type != "cuda":
            raise EngineError(f"engine.jpeg_decoder is 'nvjpeg', but the device is {device}: expected a CUDA device")
        try:
            from torchvision.io import ImageReadMode, decode_jpeg

            gpu_jpegs = cls(lambda files: list(decode_jpeg(files, mode=ImageReadMode.RGB, device=device)))
            gpu_jpegs._decode_files([_bytes_of(_plain_jpeg())] * 4)  # which takes its memory
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            # an AttributeError: torchvision only warns when the library of its decoders can't be loaded
            raise EngineError(
                f"engine.jpeg_decoder is 'nvjpeg', but torchvision can't decode on {device} ({error}); install the "
                f"CUDA build of torchvision for torch {torch.__version__}, or set engine.jpeg_decoder to opencv"
            ) from error
        return gpu_jpegs

    def takes(self, frame: Frame) -> bool:
        """Whether it is a whole JPEG file with colours or brightness in it, not the mosaic of a sensor."""
        if frame.height or frame.encoding.startswith("bayer_") or bytes(frame.data[:2]) != JPEG_START:
            return False
        try:
            frame_size(frame)
        except BadImageError:
            return False
        return True

    def decode(self, frames: Sequence[Frame]) -> list[Tensor | None]:
        """RGB uint8 [H, W, 3] of each, with any strides; None for one that nvJPEG can't read.

        Which of several files that was it doesn't say, so they are all decoded again, one by one. A camera's files are
        alike: from then on its own are decoded by themselves, until one can be read, and the others' only once.
        """
        alone = [at for at, frame in enumerate(frames) if frame.camera in self._unreadable]
        together = [at for at, frame in enumerate(frames) if frame.camera not in self._unreadable]
        pictures: list[Tensor | None] = [None] * len(frames)
        for group in (together, *([at] for at in alone)):
            for at, picture in zip(group, self._decode_group([frames[at] for at in group]), strict=True):
                pictures[at] = picture
        return pictures

    def _decode_group(self, frames: Sequence[Frame]) -> list[Tensor | None]:
        if not frames:
            return []
        try:
            pictures = [_rows(each) for each in self._decode_files([_bytes_of(frame.data) for frame in frames])]
        except torch.OutOfMemoryError:  # which says nothing of a file
            raise
        except RuntimeError as error:
            if len(frames) > 1:
                return [picture for frame in frames for picture in self._decode_group([frame])]
            self._unreadable.add(frames[0].camera)
            self._say(frames[0].camera, error)
            return [None]
        self._unreadable.difference_update(frame.camera for frame in frames)
        return list(pictures)

    def _say(self, camera: int, error: RuntimeError) -> None:
        """A camera's files are alike: loudly at the first of them alone."""
        level = logging.DEBUG if camera in self._said else logging.WARNING
        self._said.add(camera)
        logger.log(level, "nvJPEG can't read a frame of camera %d, which OpenCV decodes instead: %s", camera, error)


def jpegs_by_options(wanted: LoadOptions, device: torch.device) -> GpuJpegs | None:
    """What the options ask for; None for OpenCV.

    Raises:
        ConfigurationError: an unknown decoder.
        EngineError: it isn't there.
    """
    if wanted.jpeg_decoder not in JPEG_DECODERS:
        raise ConfigurationError(
            f"engine.jpeg_decoder is {wanted.jpeg_decoder!r}; it has to be one of {', '.join(JPEG_DECODERS)}"
        )
    return GpuJpegs.on(device) if wanted.jpeg_decoder == "nvjpeg" else None


def _bytes_of(data: object) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())  # type: ignore[call-overload]


def _rows(picture: Tensor) -> Tensor:
    return picture.permute(1, 2, 0)


def _plain_jpeg() -> bytes:
    return bytes(cv2.imencode(".jpg", np.full((1080, 1920, 3), 128, np.uint8))[1])
