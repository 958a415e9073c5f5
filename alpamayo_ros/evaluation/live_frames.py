"""The anchor camera's pictures while a node runs, small, for the few ticks whose picture a report shows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np

from alpamayo_ros.core.incoming import SECOND_NS, image_arguments
from alpamayo_ros.core.settings import CameraSettings
from alpamayo_ros.core.types import BadImageError, Frame
from alpamayo_ros.sensors.decode import decode

REMEMBERED_NS = 3 * SECOND_NS // 2  # of pictures: the messages of a tick come later, but hardly by so much
WIDTH, JPEG_QUALITY = 960, 85  # of what is kept


class LiveFrames:
    """Remembers the newest pictures, and keeps those that are wanted.

    Args:
        camera: of the rig: its index and time offset.
    """

    def __init__(self, camera: CameraSettings) -> None:
        self._camera = camera
        self._offset_ns = round(camera.time_offset * 1e9)
        self._recent: deque[Frame] = deque()
        self._wanted: set[int] = set()
        self.kept: dict[int, Frame] = {}  # by t0, ns

    def add(self, message: Any) -> None:
        """A sensor_msgs Image or CompressedImage."""
        arguments = image_arguments(message)
        stamp_ns = arguments.pop("stamp_ns") + self._offset_ns
        frame = Frame(serial=0, camera=self._camera.index, stamp_ns=stamp_ns, **arguments)
        if self._recent and abs(stamp_ns - self._recent[-1].stamp_ns) > REMEMBERED_NS:  # a bag that begins again
            self._recent.clear()
        self._recent.append(frame)
        while stamp_ns - self._recent[0].stamp_ns > REMEMBERED_NS:
            self._recent.popleft()
        if stamp_ns in self._wanted:
            self._keep(frame)

    def want(self, t0_ns: int) -> None:
        """A tick that may be shown; its picture has come, or comes soon."""
        self._wanted = {stamp for stamp in self._wanted if abs(stamp - t0_ns) < REMEMBERED_NS} | {t0_ns}
        for frame in self._recent:
            if frame.stamp_ns == t0_ns:
                self._keep(frame)
                return

    def forget(self, t0_ns: Iterable[int]) -> None:
        """Ticks that won't be shown."""
        for stamp in t0_ns:
            self.kept.pop(stamp, None)

    def _keep(self, frame: Frame) -> None:
        self._wanted.discard(frame.stamp_ns)
        try:
            pixels = decode(frame)
        except BadImageError:  # the node has said so
            return
        height, width = pixels.shape[:2]
        if width > WIDTH:
            size = (WIDTH, round(height * WIDTH / width))
            pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
        quality = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
        done, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), quality)
        if done:
            self.kept[frame.stamp_ns] = Frame(0, frame.camera, frame.stamp_ns, data.tobytes(), "jpeg")
