"""Turns a recorded drive into a ROS 2 bag (MCAP).

The bag has a CompressedImage topic per camera (/camera/NAME/image/compressed), /odometry with twist, /tf (odom to
base_link) and /tf_static. It has no /clock: whoever plays it decides about time.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from alpamayo_ros.core.rotation import matrix_from_rpy
from alpamayo_ros.core.types import Array, ConfigurationError
from alpamayo_ros.evaluation.bag import BagWriter
from alpamayo_ros.evaluation.drive_bag import SECOND, DriveBag
from alpamayo_ros.evaluation.recording import (
    Stamps,
    Track,
    base_poses,
    camera_poses_in_ros_axes,
    list_images,
    read_image_file,
    read_kitti_poses,
    read_times,
    read_tum_poses,
    track_from_poses,
)
from alpamayo_ros.progress import progress
from alpamayo_ros.tools.command import guarded, number_within, run_command

UNIX_TIME = 100_000_000 * SECOND  # earlier stamps are counted from the recording's start
DEFAULT_START = 1_000_000_000 * SECOND  # and begin here: in ROS a stamp of 0 means that there is none

IMAGES_HELP = """One image per time and camera, and a file of poses.

The n-th image of a folder, by name, belongs to the n-th time. There may be more times than images.

Poses of kitti: rows of 12 numbers, the 3x4 matrix of the first camera in the world, one per time; axes x right,
y down, z forward. Poses of tum: rows of time x y z qx qy qz qw with times of their own, in the clock of --times; axes
x forward, y left, z up. --pose-axes is for files that do it differently. With camera axes, odom is base_link at the
first pose; with ros axes it is the world of the poses.
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line: one subcommand per kind of recording."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.make_bag",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    images = kinds.add_parser(
        "images",
        help="folders of images, a file of times and a file of poses",
        description=IMAGES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    images.add_argument(
        "--camera", action="append", required=True, metavar="NAME=FOLDER", help="a camera's images; once per camera"
    )
    images.add_argument("--times", type=Path, required=True, help="a time per line, in seconds")
    images.add_argument("--poses", type=Path, required=True, help="a pose per line")
    images.add_argument("--pose-format", choices=("kitti", "tum"), required=True)
    images.add_argument(
        "--pose-axes",
        choices=("camera", "ros"),
        help="camera: x right, y down, z forward (kitti's default); ros: x forward, y left, z up (tum's default)",
    )
    images.add_argument(
        "--camera-to-base",
        type=number_within(1000),
        nargs=6,
        default=[0.0] * 6,
        metavar=("X", "Y", "Z", "ROLL", "PITCH", "YAW"),
        help="where the camera that the poses are of (the first --camera) is mounted in base_link, m and rad, about "
        "fixed axes; all 0 is a camera at base_link that looks ahead (default: the poses are base_link's)",
    )
    images.add_argument("--out", type=Path, required=True, help="the bag, a folder to be made")
    images.add_argument(
        "--start-stamp",
        type=number_within(2**31),
        metavar="SECONDS",
        help="stamp of the first time (default: times as they are where they are Unix times, else 1000000000)",
    )
    images.add_argument(
        "--latency",
        type=number_within(1000),
        default=0.0,
        metavar="SECONDS",
        help="images are received this long after their stamp (default 0); odometry at once",
    )
    images.add_argument("--overwrite", action="store_true", help="replace an existing bag")
    images.set_defaults(run=make_from_images)
    return parser


def make_from_images(options: argparse.Namespace) -> str:
    """Write the bag of folders of images; returns a summary."""
    cameras = _cameras(options.camera)
    times = read_times(options.times)
    for name, files in cameras.items():
        if len(files) > len(times):
            raise ConfigurationError(
                f"camera {name} has {len(files)} images, but {options.times} only {len(times)} times; "
                "expected a time for each image"
            )
    mounting = np.eye(4)
    mounting[:3, :3] = matrix_from_rpy(*options.camera_to_base[3:])
    mounting[:3, 3] = options.camera_to_base[:3]
    stamps, poses = _poses(options, times, mounting)
    shift = _shift(int(times[0]), options.start_stamp)
    track = track_from_poses(stamps + shift, poses)
    latency = round(options.latency * SECOND)
    if latency < 0:
        raise ConfigurationError(f"--latency {options.latency}: expected at least 0 s")
    _write(options, cameras, times + shift, track, mounting, latency)
    seconds = (track.stamps_ns[-1] - track.stamps_ns[0]) / SECOND
    counts = ", ".join(f"{len(files)} images of {name}" for name, files in cameras.items())
    return f"{options.out}: {counts}, {len(track.stamps_ns)} poses over {seconds:.1f} s"


def _cameras(arguments: list[str]) -> dict[str, list[Path]]:
    cameras: dict[str, list[Path]] = {}
    for argument in arguments:
        name, _, folder = argument.partition("=")
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or not folder:
            raise ConfigurationError(
                f"--camera {argument}: expected NAME=FOLDER, the name of letters, digits and underscores"
            )
        if name in cameras:
            raise ConfigurationError(f"--camera {name} is given twice; expected each name once")
        cameras[name] = list_images(Path(folder))
    return cameras


def _poses(options: argparse.Namespace, times: Stamps, mounting: Array) -> tuple[Stamps, Array]:
    """Stamps [N] in the clock of `times`, and poses [N, 4, 4] of base_link in odom."""
    if options.pose_format == "tum":
        stamps, poses = read_tum_poses(options.poses)
        axes = options.pose_axes or "ros"
    else:
        poses = read_kitti_poses(options.poses)
        axes = options.pose_axes or "camera"
        if len(poses) > len(times):
            raise ConfigurationError(
                f"{options.poses} has {len(poses)} poses, but {options.times} only {len(times)} times; "
                "expected a time for each pose"
            )
        stamps = times[: len(poses)]
    if axes == "camera":
        poses = mounting @ camera_poses_in_ros_axes(poses)  # the world moves to where base_link starts
    return stamps, base_poses(poses, mounting)


def _shift(first_ns: int, start: float | None) -> int:
    """What is added to every stamp, ns."""
    if start is not None:
        if start <= 0:
            raise ConfigurationError(f"--start-stamp {start}: expected more than 0 s, which means no stamp in ROS")
        return round(start * SECOND) - first_ns
    return 0 if first_ns >= UNIX_TIME else DEFAULT_START - first_ns


def _write(
    options: argparse.Namespace,
    cameras: dict[str, list[Path]],
    image_stamps: Stamps,
    track: Track,
    mounting: Array,
    latency: int,
) -> None:
    first_ns = int(min(image_stamps[0], track.stamps_ns[0]))
    with BagWriter(options.out, overwrite=options.overwrite) as writer:
        bag = DriveBag(writer)
        events: list[tuple[int, Callable[[], None]]] = []  # receive time, and what writes it
        posed = next(iter(cameras))
        events.append((first_ns, partial(bag.mountings, first_ns, {posed: (mounting[:3, 3], mounting[:3, :3])})))
        for number, stamp in enumerate(map(int, track.stamps_ns)):
            pose = (track.position[number], track.rotation[number], track.linear[number], track.angular[number])
            events.append((stamp, partial(bag.pose, stamp, *pose)))
        for name, files in cameras.items():
            for stamp, file in zip(map(int, image_stamps), files, strict=False):
                events.append((stamp + latency, partial(_write_image, bag, name, stamp, file, stamp + latency)))
        events.sort(key=lambda event: event[0])
        for _, write in progress(events, desc=f"writing {options.out.name}", unit=" messages"):
            write()


def _write_image(bag: DriveBag, camera: str, stamp_ns: int, file: Path, receive_ns: int) -> None:
    data, form = read_image_file(file)
    bag.image(camera, stamp_ns, data, form, receive_ns)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when the bag is there."""
    options = build_parser().parse_args(arguments)

    def make() -> int:
        print(options.run(options))
        return 0

    return guarded(make, interrupted="interrupted; nothing was written")


if __name__ == "__main__":
    run_command(main)
