"""A camera's video as images, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cv2

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.datasets.drive import EncodedImage

JPEG_QUALITY = 95  # the video has lost more already


def video_frames(path: Path, count: int) -> Iterator[EncodedImage]:
    """The video's frames as JPEG files.

    Raises:
        ConfigurationError: it can't be opened, or doesn't have so many frames.
    """
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    try:
        if not video.isOpened():
            raise ConfigurationError(
                f"{path} is missing or no video that OpenCV's FFmpeg decodes; expected MP4 or a stream of H.264 or HEVC"
            )
        for number in range(count):
            decoded, pixels = video.read()
            if not decoded:
                raise ConfigurationError(
                    f"{path} has {number} frames that can be decoded, and there are {count} times of frames; is the "
                    "file whole?"
                )
            yield _jpeg(pixels), "rgb8; jpeg compressed bgr8"
        if video.grab():
            raise ConfigurationError(f"{path} has more than the {count} frames of which the times are known")
    finally:
        video.release()


def video_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels.

    Raises:
        ConfigurationError: it can't be opened.
    """
    video = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
    try:
        width, height = int(video.get(cv2.CAP_PROP_FRAME_WIDTH)), int(video.get(cv2.CAP_PROP_FRAME_HEIGHT))
    finally:
        video.release()
    if not width * height:
        raise ConfigurationError(
            f"{path} is missing or no video that OpenCV's FFmpeg decodes; expected MP4 or a stream of H.264 or HEVC"
        )
    return width, height


def _jpeg(pixels: cv2.typing.MatLike) -> bytes:
    return bytes(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1])
