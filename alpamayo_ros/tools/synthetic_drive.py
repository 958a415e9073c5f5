"""Renders a short synthetic drive into a ROS 2 bag (MCAP): four cameras at 10 Hz, odometry and tf at 50 Hz."""

from __future__ import annotations

import argparse
from pathlib import Path

import cv2

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.bag import BagWriter
from alpamayo_ros.evaluation.drive_bag import DriveBag
from alpamayo_ros.progress import progress
from alpamayo_ros.sim.drive import SyntheticDrive, synthetic_drive
from alpamayo_ros.tools.command import guarded, run_command

JPEG_QUALITY = 90


def write_drive(drive: SyntheticDrive, out: Path, *, overwrite: bool = False) -> None:
    """Render the drive into a bag with the topics of `make_bag`, and a CameraInfo beside each image."""
    with BagWriter(out, overwrite=overwrite) as writer:
        bag = DriveBag(writer)
        track = drive.track
        mountings = {name: (model.position, model.rotation) for name, model in drive.cameras.items()}
        bag.mountings(int(track.stamps_ns[0]), mountings)
        for number, stamp in enumerate(map(int, track.stamps_ns)):
            bag.pose(stamp, track.position[number], track.rotation[number], track.linear[number], track.angular[number])
        total = len(drive.image_stamps_ns) * len(drive.cameras)
        for stamp, camera, picture in progress(drive.images(), desc="rendering", total=total, unit=" images"):
            bgr = cv2.cvtColor(picture, cv2.COLOR_RGB2BGR)
            data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1].tobytes()
            bag.image(camera, stamp, data, "rgb8; jpeg compressed bgr8")
            bag.camera_info(camera, stamp, drive.cameras[camera])


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 0 when the bag is there."""
    parser = argparse.ArgumentParser(prog="python -m alpamayo_ros.tools.synthetic_drive", description=__doc__)
    parser.add_argument("--duration", type=float, default=20.0, metavar="SECONDS", help="default 20")
    parser.add_argument("--seed", type=int, default=0, help="another seed is another road (default 0)")
    parser.add_argument(
        "--size", type=int, nargs=2, default=[320, 180], metavar=("WIDTH", "HEIGHT"), help="pixels (default 320 180)"
    )
    parser.add_argument("--out", type=Path, required=True, help="the bag, a folder to be made")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing bag")
    options = parser.parse_args(arguments)
    return guarded(lambda: _make(options), interrupted="interrupted; nothing was written")


def _make(options: argparse.Namespace) -> int:
    width, height = options.size
    if options.seed < 0:
        raise ConfigurationError(f"--seed {options.seed}: expected at least 0")
    drive = synthetic_drive(options.duration, options.seed, width=width, height=height)
    write_drive(drive, options.out, overwrite=options.overwrite)
    frames = len(drive.image_stamps_ns)
    print(f"{options.out}: {frames} images of each of {len(drive.cameras)} cameras, {len(drive.along)} poses")
    return 0


if __name__ == "__main__":
    run_command(main)
