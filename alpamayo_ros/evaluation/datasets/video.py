"""A camera's video as images, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import EncodedImage

JPEG_QUALITY = 95  # the video has lost more already


def video_frames(path: Path, count: int) -> Iterator[EncodedImage]:
    """The video's frames as JPEG files.

    Raises:
        ConfigurationError: it can't be opened, or has more or fewer frames than `count`.
    """
    with _opened(path) as video:
        for number in range(count):
            decoded, pixels = video.read()
            if not decoded:
                raise ConfigurationError(
                    f"{path} has {number} frames that can be decoded, and there are times of {count} frames; is the "
                    "file whole?"
                )
            data = cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]
            yield data.tobytes(), "rgb8; jpeg compressed bgr8"
        if video.grab():
            raise ConfigurationError(f"{path} has more than the {count} frames of which the times are known")


def video_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels.

    Raises:
        ConfigurationError: it can't be opened.
    """
    with _opened(path) as video:
        return round(video.get(cv2.CAP_PROP_FRAME_WIDTH)), round(video.get(cv2.CAP_PROP_FRAME_HEIGHT))


@contextmanager
def _opened(path: Path) -> Iterator[cv2.VideoCapture]:
    if not path.is_file():
        raise ConfigurationError(f"there is no video at {path}")
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    try:
        if not video.isOpened():
            raise ConfigurationError(
                f"{path} is no video that OpenCV's FFmpeg can decode; expected MP4, or a stream of H.264 or HEVC"
            )
        yield video
    finally:
        video.release()
