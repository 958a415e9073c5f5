"""A raw drive of KITTI becomes a bag: GPS and IMU as odometry, cameras through three calibration files."""

import datetime
from pathlib import Path

import cv2
import numpy as np
import pytest
from landmark import LAMP, SPEED, YAW_RATE, SeenBag, base_pose, make, matrix, picture, seen, times

from alpamayo_ros.core.rotation import matrix_from_rpy
from alpamayo_ros.evaluation.datasets.kitti_raw import EARTH_RADIUS, IMU_IN_BASE
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA
from alpamayo_ros.tools.make_bag import main

LATITUDE, LONGITUDE, ALTITUDE, HEADING = 49.0, 8.4, 116.0, 2.2  # deg, deg, m, rad from east to the north
START = datetime.datetime(2011, 9, 26, 13, 2, 25, tzinfo=datetime.timezone.utc)
VELO_FROM_IMU = matrix(matrix_from_rpy(0.01, -0.005, 0.002), (-0.81, 0.32, -0.80))
CAM_FROM_VELO = matrix(OPTICAL_IN_CAMERA.T @ matrix_from_rpy(0.0, 0.015, -0.007), (-0.004, -0.076, -0.27))
RECTIFY = matrix_from_rpy(0.004, -0.009, 0.01)
PROJECTION = np.array([[150.0, 0, 158, 150.0 * 0.06], [0, 150, 121, 0.2], [0, 0, 1, 0.003]])
WORLD = matrix(matrix_from_rpy(0, 0, HEADING))  # east, north, up <- where base_link is at time 0


def imu_pose(t: float) -> np.ndarray:
    return WORLD @ base_pose(t) @ matrix(np.eye(3), IMU_IN_BASE)


def write_line(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        out.write(text + "\n")


def stamp(t: float) -> str:
    whole = START + datetime.timedelta(seconds=int(t))
    return f"{whole:%Y-%m-%d %H:%M:%S}.{round((t % 1) * 1e9):09d}"


def recording(folder: Path) -> Path:
    drive = folder / "2011_09_26" / "2011_09_26_drive_0001_sync"
    scale = np.cos(np.radians(LATITUDE))
    for at, t in enumerate(times(2, 10, begin=0.0001)):
        pose = imu_pose(t)
        east, north, up = pose[:3, 3]
        mercator = np.log(np.tan(np.pi / 4 + np.radians(LATITUDE) / 2)) + north / (scale * EARTH_RADIUS)
        latitude = np.degrees(2 * np.arctan(np.exp(mercator)) - np.pi / 2)
        longitude = LONGITUDE + np.degrees(east / (scale * EARTH_RADIUS))
        yaw = np.arctan2(pose[1, 0], pose[0, 0])
        values = [latitude, longitude, ALTITUDE + up, 0, 0, yaw, *[0] * 24]
        write_line(drive / "oxts" / "data" / f"{at:010d}.txt", " ".join(f"{value:.12f}" for value in values))
        write_line(drive / "oxts" / "timestamps.txt", stamp(t))
    for at, t in enumerate(times(1.6, 10, begin=0.2123456)):
        rectified = CAM_FROM_VELO @ VELO_FROM_IMU @ [*seen(imu_pose(t), (WORLD @ [*LAMP, 1])[:3]), 1.0]
        x, y, w = PROJECTION @ [*(RECTIFY @ rectified[:3]), 1.0]
        (drive / "image_02" / "data").mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(drive / "image_02" / "data" / f"{at:010d}.png"), picture((x / w, y / w)))
        write_line(drive / "image_02" / "timestamps.txt", stamp(t))
    row = " ".join
    for name, pose in (("velo_to_cam", CAM_FROM_VELO), ("imu_to_velo", VELO_FROM_IMU)):
        file = drive.parent / f"calib_{name}.txt"
        write_line(file, "calib_time: 15-Mar-2012 11:37:16")
        write_line(file, f"R: {row(map(str, pose[:3, :3].ravel()))}\nT: {row(map(str, pose[:3, 3]))}")
    file = drive.parent / "calib_cam_to_cam.txt"
    write_line(file, f"R_rect_00: {row(map(str, RECTIFY.ravel()))}\nP_rect_02: {row(map(str, PROJECTION.ravel()))}")
    return drive


def test_the_lamp_is_where_the_camera_sees_it(tmp_path: Path) -> None:
    assert make(main, "kitti", recording(tmp_path), "--out", tmp_path / "bag") == 0
    bag = SeenBag(tmp_path / "bag")
    bag.check_left_turn()
    odometry = bag.odometry()
    first = WORLD @ base_pose(0.0001)
    assert np.allclose(odometry.position[0], 0)
    assert np.allclose(odometry.rotation[0], first[:3, :3])  # x is east
    errors = bag.lamp_errors("front_wide", (WORLD @ [*LAMP, 1])[:3] - first[:3, 3])
    assert len(errors) == 17
    assert max(errors) < 0.5


def test_stamps_are_exact(tmp_path: Path) -> None:
    make(main, "kitti", recording(tmp_path), "--out", tmp_path / "bag")
    (first, *_) = SeenBag(tmp_path / "bag").images("front_wide")
    assert first == round(START.timestamp()) * 10**9 + 212_345_600


def test_speed_and_turn_follow_the_positions(tmp_path: Path) -> None:
    make(main, "kitti", recording(tmp_path), "--out", tmp_path / "bag")
    odometry = SeenBag(tmp_path / "bag").odometry()
    seconds = (odometry.stamps[-1] - odometry.stamps[0]) * 1e-9
    moved = np.linalg.norm(np.diff(odometry.position, axis=0), axis=1).sum()
    assert moved / seconds == pytest.approx(SPEED, abs=0.05)
    turned = odometry.rotation[0].T @ odometry.rotation[-1]
    assert np.arctan2(turned[1, 0], turned[0, 0]) / seconds == pytest.approx(YAW_RATE, abs=1e-3)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("oxts/data/0000000003.txt", "49 8 116\n", "3 values beginning with"),
        ("oxts/timestamps.txt", "yesterday\n", "expected lines such as 2011-09-26 13:02:25.964389445"),
        ("image_02/timestamps.txt", "2011-09-26 13:02:25.9\n", "17 images and 1 times"),
        ("../calib_imu_to_velo.txt", "R: 1 0 0 0 1 0 0 0 2\nT: 0 0 0\n", "R is no rotation"),
        ("../calib_cam_to_cam.txt", "P_rect_02: 1\n", "R_rect_00 is missing"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture, file: str, text: str, message: str) -> None:
    drive = recording(tmp_path)
    (drive / file).write_text(text)
    assert make(main, "kitti", drive, "--out", tmp_path / "bag") == 1
    error = capsys.readouterr().err
    assert message in error
    assert Path(file).name in error or Path(file).parent.name in error
