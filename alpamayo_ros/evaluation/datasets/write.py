"""A recorded drive becomes a bag: the one place where its messages are written."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagWriter
from alpamayo_ros.evaluation.datasets.drive import RecordedCamera, RecordedDrive
from alpamayo_ros.evaluation.drive_bag import DriveBag
from alpamayo_ros.evaluation.recording import Track
from alpamayo_ros.progress import progress
from alpamayo_ros.sensors.camera_model import CameraModel

Event = tuple[int, Callable[[], None]]  # receive time in ns, and what writes the messages


def write_drive(drive: RecordedDrive, out: Path, *, latency_ns: int = 0, overwrite: bool = False) -> None:
    """Write a drive's images, CameraInfo, odometry, tf and tf_static, in the order in which they are received.

    Args:
        drive: its stamps are taken as they are.
        out: the bag, a folder to be made.
        latency_ns: images are received this long after their stamp; poses at once.
        overwrite: replace an existing bag.

    Raises:
        ConfigurationError: an image can't be read, or the bag can't be written; nothing is left behind then.
    """
    if latency_ns < 0:
        raise ConfigurationError(f"a latency of {latency_ns / 1e9} s: expected at least 0 s")
    with BagWriter(out, overwrite=overwrite) as writer:
        bag = DriveBag(writer)
        places = {camera.name: camera.place for camera in drive.cameras if camera.place is not None}
        if places:
            bag.mountings(drive.first_ns, {name: (place.position, place.rotation) for name, place in places.items()})
        streams = [_poses(bag, drive.track), *(_images(bag, camera, latency_ns) for camera in drive.cameras)]
        total = len(drive.track.stamps_ns) + sum(len(camera.stamps_ns) for camera in drive.cameras)
        events = heapq.merge(*streams, key=lambda event: event[0])
        for _, write in progress(events, total=total, desc=f"writing {out.name}", unit=" images and poses"):
            write()


def _poses(bag: DriveBag, track: Track) -> Iterator[Event]:
    for number, stamp in enumerate(map(int, track.stamps_ns)):
        pose = (track.position[number], track.rotation[number], track.linear[number], track.angular[number])
        yield stamp, partial(bag.pose, stamp, *pose)


def _images(bag: DriveBag, camera: RecordedCamera, latency_ns: int) -> Iterator[Event]:
    for stamp, (data, form) in zip(map(int, camera.stamps_ns), camera.images(), strict=True):
        yield stamp + latency_ns, partial(_image, bag, camera, stamp, data, form, stamp + latency_ns)


def _image(bag: DriveBag, camera: RecordedCamera, stamp_ns: int, data: bytes, form: str, receive_ns: int) -> None:
    bag.image(camera.name, stamp_ns, data, form, receive_ns)
    if isinstance(camera.place, CameraModel):
        bag.camera_info(camera.name, stamp_ns, camera.place, receive_ns)
