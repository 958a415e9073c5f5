"""Turns a recorded drive into a ROS 2 bag (MCAP).

The bag has a CompressedImage topic per camera (/camera/NAME/image/compressed) and, where the camera's calibration is
known, CameraInfo beside it (/camera/NAME/camera_info); /odometry with twist, /tf (odom to base_link) and /tf_static.
base_link is on the ground below the middle of the rear axle. It has no /clock: whoever plays it decides about time.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.datasets.comma2k19 import CAMERA_IN_BASE, read_comma2k19
from alpamayo_ros.evaluation.datasets.drive import SECOND, RecordedDrive
from alpamayo_ros.evaluation.datasets.images import PoseFile, named_folders, read_image_folders
from alpamayo_ros.evaluation.datasets.kitti_odometry import is_kitti_odometry, read_kitti_odometry
from alpamayo_ros.evaluation.datasets.kitti_raw import is_kitti_raw, read_kitti_raw
from alpamayo_ros.evaluation.datasets.nuscenes import read_nuscenes
from alpamayo_ros.evaluation.datasets.physical_ai import CAMERAS, read_physical_ai
from alpamayo_ros.evaluation.datasets.write import write_drive
from alpamayo_ros.tools.command import guarded, number_within, run_command

IMAGES_HELP = """One image per time and camera, and a file of poses.

The n-th image of a folder, by name, belongs to the n-th time. There may be more times than images.

Poses of kitti: rows of 12 numbers, the 3x4 matrix of the first camera in the world, one per time; axes x right,
y down, z forward. Poses of tum: rows of time x y z qx qy qz qw with times of their own, in the clock of --times; axes
x forward, y left, z up. --pose-axes is for files that do it differently. With camera axes, odom is base_link at the
first pose; with ros axes it is the world of the poses.
"""
KITTI_HELP = """A sequence of the odometry benchmark (calib.txt, times.txt, image_0 to image_3, poses), or a drive of
the raw data, synchronized and rectified (oxts, image_00 to image_03; the calibration in the folder above). The left
camera becomes front_wide and the right one front_tele, as in config/kitti_stereo.yaml; colour is taken before gray.
"""
NUSCENES_HELP = """A scene, with all cameras that the tables name: front, front_left, front_right, back, back_left,
back_right, as config/nuscenes_6cam.yaml has them. It needs `samples` and `sweeps`: keyframes alone are 2 Hz.
"""
COMMA_HELP = """A segment of a minute: video.hevc and global_pose. The camera becomes front_wide. The data set doesn't
say where it is in the car: set --camera-to-base where you know better.
"""
PHYSICAL_AI_HELP = """A clip of NVIDIA's PhysicalAI-Autonomous-Vehicles, of a folder with its layout: labels/egomotion,
camera/camera_*, and calibration/camera_intrinsics and sensor_extrinsics for CameraInfo. Archives are read as they are.
Cameras are named as config/physical_ai_4cam.yaml has them. Clip time 0 becomes 1000000000 s. pyarrow is needed.
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line: one subcommand per kind of recording."""
    parser = argparse.ArgumentParser(
        prog="python -m alpamayo_ros.tools.make_bag",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="FORMAT")
    _add_images(kinds)

    kitti = _add_format(kinds, "kitti", "KITTI, odometry benchmark or raw data", KITTI_HELP, _kitti)
    kitti.add_argument("source", type=Path, metavar="SOURCE", help="folder of the benchmark, a sequence or a raw drive")
    kitti.add_argument("--sequence", metavar="NAME", help="of the benchmark, such as 06")

    nuscenes = _add_format(kinds, "nuscenes", "nuScenes", NUSCENES_HELP, _nuscenes)
    nuscenes.add_argument("source", type=Path, metavar="SOURCE", help="folder with samples, sweeps and v1.0-...")
    nuscenes.add_argument("--scene", metavar="NAME", help="such as scene-0103")
    nuscenes.add_argument("--version", metavar="NAME", help="which tables, such as v1.0-mini, where there are several")

    comma = _add_format(kinds, "comma2k19", "comma2k19", COMMA_HELP, _comma2k19)
    comma.add_argument("source", type=Path, metavar="SOURCE", help="folder of a segment")
    _add_mounting(
        comma,
        CAMERA_IN_BASE,
        "where the camera is in base_link, m and rad, about fixed axes "
        f"(default {' '.join(f'{value:g}' for value in CAMERA_IN_BASE)}: openpilot's height, the rest estimated)",
    )

    physical_ai = _add_format(
        kinds, "physical_ai", "NVIDIA's PhysicalAI-Autonomous-Vehicles", PHYSICAL_AI_HELP, _physical_ai
    )
    physical_ai.add_argument("source", type=Path, metavar="SOURCE", help="folder with labels, camera and calibration")
    physical_ai.add_argument("--clip", metavar="ID", help="where there are several")
    physical_ai.add_argument(
        "--cameras", nargs="+", default=[], choices=CAMERAS, metavar="NAME", help="default: all that were downloaded"
    )
    return parser


def _add_format(kinds: Any, name: str, short: str, long: str, read: Any) -> argparse.ArgumentParser:
    """A subcommand with the options that all have."""
    parser: argparse.ArgumentParser = kinds.add_parser(
        name, help=short, description=long, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.set_defaults(read=read)
    parser.add_argument("--out", type=Path, required=True, help="the bag, a folder to be made")
    parser.add_argument(
        "--start-stamp",
        type=number_within(2**31),
        metavar="SECONDS",
        help="stamp of the earliest image or pose (default: Unix times as they are; others count from 1000000000)",
    )
    parser.add_argument(
        "--latency",
        type=number_within(1000),
        default=0.0,
        metavar="SECONDS",
        help="images are received this long after their stamp (default 0); odometry at once",
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="keep every n-th image of each camera (default 1: all)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing bag")
    return parser


def _add_mounting(parser: argparse.ArgumentParser, default: tuple[float, ...], text: str) -> None:
    parser.add_argument(
        "--camera-to-base",
        type=number_within(1000),
        nargs=6,
        default=default,
        metavar=("X", "Y", "Z", "ROLL", "PITCH", "YAW"),
        help=text,
    )


def _add_images(kinds: Any) -> None:
    images = _add_format(kinds, "images", "folders of images, a file of times and one of poses", IMAGES_HELP, _images)
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
    _add_mounting(
        images,
        (0.0,) * 6,
        "where the camera that the poses are of (the first --camera) is mounted in base_link, m and rad, about "
        "fixed axes; all 0 is a camera at base_link that looks ahead (default: the poses are base_link's)",
    )


def _images(options: argparse.Namespace) -> RecordedDrive:
    axes = options.pose_axes or {"kitti": "camera", "tum": "ros"}[options.pose_format]
    return read_image_folders(
        named_folders(options.camera),
        options.times,
        PoseFile(options.poses, options.pose_format, axes),
        Mounting.from_xyz_rpy(options.camera_to_base),
    )


def _kitti(options: argparse.Namespace) -> RecordedDrive:
    if is_kitti_odometry(options.source):
        return read_kitti_odometry(options.source, options.sequence)
    if is_kitti_raw(options.source):
        if options.sequence is not None:
            raise ConfigurationError(f"--sequence {options.sequence}: {options.source} is a raw drive, and has none")
        return read_kitti_raw(options.source)
    raise ConfigurationError(
        f"{options.source} is no recording of KITTI: expected a folder `sequences`, a sequence with calib.txt, or a "
        "raw drive with a folder `oxts`"
    )


def _nuscenes(options: argparse.Namespace) -> RecordedDrive:
    return read_nuscenes(options.source, options.scene, options.version)


def _comma2k19(options: argparse.Namespace) -> RecordedDrive:
    return read_comma2k19(options.source, Mounting.from_xyz_rpy(options.camera_to_base))


def _physical_ai(options: argparse.Namespace) -> RecordedDrive:
    return read_physical_ai(options.source, options.clip, tuple(options.cameras))


def _make(options: argparse.Namespace) -> int:
    start_ns = None if options.start_stamp is None else round(options.start_stamp * SECOND)
    drive: RecordedDrive = options.read(options).thinned(options.every).beginning_at(start_ns)
    write_drive(drive, options.out, latency_ns=round(options.latency * SECOND), overwrite=options.overwrite)
    for note in drive.notes:
        print(f"note: {note}")
    counts = ", ".join(f"{len(camera.stamps_ns)} images of {camera.name}" for camera in drive.cameras)
    seconds = (drive.track.stamps_ns[-1] - drive.track.stamps_ns[0]) / SECOND
    print(f"{options.out}: {counts}, {len(drive.track.stamps_ns)} poses over {seconds:.1f} s")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when the bag is there."""
    options = build_parser().parse_args(arguments)
    return guarded(lambda: _make(options), interrupted="interrupted; nothing was written")


if __name__ == "__main__":
    run_command(main)
