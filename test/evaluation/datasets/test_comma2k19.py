"""A segment of comma2k19 becomes a bag: from poses on the Earth to a drive on flat ground, video and all."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from landmark import LAMP, SIZE, SeenBag, base_pose, make, matrix, seen, times, video

from alpamayo_ros.core.rotation import matrix_from_rpy, quaternion_from_matrix
from alpamayo_ros.evaluation.datasets.comma2k19 import CAMERA_IN_BASE
from alpamayo_ros.tools.make_bag import main

COMMA = Path(__file__).parents[3].parent / "shared" / "data" / "comma2k19_pose_can"
LATITUDE, LONGITUDE, HEIGHT = np.radians(37.72), np.radians(-122.47), 30.0
BOOT = 46408.5  # s, when the first frame was taken
FIRST_AXIS = 6378137.0  # m, of WGS 84, and its eccentricity squared
ECCENTRICITY = 6.69437999014e-3
CAMERA = matrix(
    np.eye(3), CAMERA_IN_BASE[:3]
)  # looks along x; its frame in the data set has x forward, y right, z down
FORWARD_RIGHT_DOWN = np.diag([1.0, -1.0, -1.0])
HEADING = 1.9  # rad from east to north


def ecef_from_enu() -> np.ndarray:
    """[4, 4], by the formulas of geodesy: columns are east, north and up at the place where the drive begins."""
    lat, lon = LATITUDE, LONGITUDE
    east = [-np.sin(lon), np.cos(lon), 0]
    north = [-np.sin(lat) * np.cos(lon), -np.sin(lat) * np.sin(lon), np.cos(lat)]
    up = np.array([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])
    normal = FIRST_AXIS / np.sqrt(1 - ECCENTRICITY * np.sin(lat) ** 2)
    place = up * [normal + HEIGHT, normal + HEIGHT, normal * (1 - ECCENTRICITY) + HEIGHT]
    return matrix(np.column_stack([east, north, up]), place)


WORLD = matrix(matrix_from_rpy(0, 0, HEADING))  # east, north, up <- where base_link is at time 0


def save(file: Path, values: np.ndarray) -> None:
    with file.open("wb") as out:
        np.save(out, values)


def segment(folder: Path) -> Path:
    moments = times(2, 20)
    poses = [ecef_from_enu() @ WORLD @ base_pose(t) @ CAMERA for t in moments]
    quaternions = quaternion_from_matrix(np.array([pose[:3, :3] @ FORWARD_RIGHT_DOWN for pose in poses]))
    (folder / "global_pose").mkdir(parents=True)
    for name, values in {
        "frame_times": BOOT + np.array(moments),
        "frame_positions": np.array([pose[:3, 3] for pose in poses]),
        "frame_orientations": quaternions[:, [3, 0, 1, 2]],
    }.items():
        save(folder / "global_pose" / name, values)
    pixels = []
    for t in moments:
        ahead, left, up = seen(base_pose(t) @ CAMERA, LAMP)
        across, down = SIZE[0] / 1164, SIZE[1] / 874  # the picture is a smaller one than the camera's
        pixels.append(((582 - 910 * left / ahead) * across, (437 - 910 * up / ahead) * down))
    video(folder / "video.hevc", pixels, 20)
    return folder


def test_the_lamp_is_where_the_camera_sees_it(tmp_path: Path) -> None:
    assert make(main, "comma2k19", segment(tmp_path / "40"), "--out", tmp_path / "bag") == 0
    bag = SeenBag(tmp_path / "bag")
    bag.check_left_turn()
    errors = bag.lamp_errors("front_wide", (WORLD @ [*LAMP, 1])[:3])
    assert len(errors) == 41
    assert max(errors) < 0.8  # the video has lost a little
    odometry = bag.odometry()
    assert np.allclose(odometry.rotation[0], WORLD[:3, :3], atol=1e-6)  # east, north, up
    assert np.abs(odometry.position[:, 2]).max() < 1e-3
    assert odometry.stamps[0] == 1_000_000_000 * 10**9 + round(BOOT * 1e9)


def test_every_other_image(tmp_path: Path) -> None:
    make(main, "comma2k19", segment(tmp_path / "40"), "--every", "2", "--out", tmp_path / "bag")
    bag = SeenBag(tmp_path / "bag")
    stamps = np.array(list(bag.images("front_wide")))
    assert len(stamps) == 21
    assert np.allclose(np.diff(stamps), 1e8)
    assert max(bag.lamp_errors("front_wide", (WORLD @ [*LAMP, 1])[:3])) < 0.8


def test_the_camera_can_be_placed(tmp_path: Path) -> None:
    where = ["--camera-to-base", "1.9", "0.1", "1.3", "0", "0.02", "0"]
    make(main, "comma2k19", segment(tmp_path / "40"), *where, "--out", tmp_path / "bag")
    assert np.allclose(SeenBag(tmp_path / "bag").camera("front_wide").position, [1.9, 0.1, 1.3])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("video.hevc", None, "there is no video at"),
        ("video.hevc", b"no video", "video.hevc is no video that OpenCV"),
        ("global_pose/frame_times", None, "expected a segment of comma2k19"),
        ("global_pose/frame_times", np.zeros(5), "5 times, 41 positions"),
        ("global_pose/frame_times", np.zeros(41), "each later than the one before"),
        ("global_pose/frame_positions", np.zeros((41, 2)), "shape (41, 2), expected rows of 3"),
        ("global_pose/frame_orientations", np.zeros((41, 4)), "a quaternion is 0"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, file: str, content: bytes | np.ndarray | None, message: str
) -> None:
    folder = segment(tmp_path / "40")
    (folder / file).unlink()
    if isinstance(content, bytes):
        (folder / file).write_bytes(content)
    elif content is not None:
        save(folder / file, content)
    assert make(main, "comma2k19", folder, "--out", tmp_path / "bag") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "bag").exists()


@pytest.mark.parametrize(
    ("frames", "message"), [(30, "has 30 frames that can be decoded"), (50, "has more than the 41")]
)
def test_a_video_of_another_length(tmp_path: Path, capsys: pytest.CaptureFixture, frames: int, message: str) -> None:
    folder = segment(tmp_path / "40")
    video(folder / "video.hevc", [(100.0, 100.0)] * frames, 20)
    assert make(main, "comma2k19", folder, "--out", tmp_path / "bag") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "bag").exists()


@pytest.mark.skipif(not COMMA.exists(), reason=f"no recorded drive in {COMMA}")
def test_a_recorded_drive_moves_as_its_can_bus_says(tmp_path: Path) -> None:
    folder = tmp_path / "40"
    folder.mkdir()
    (folder / "global_pose").symlink_to(COMMA / "global_pose")
    preview = cv2.resize(cv2.imread(str(COMMA / "preview.png")), SIZE)
    writer = cv2.VideoWriter(str(folder / "v.mp4"), cv2.VideoWriter_fourcc(*"mp4v"), 20, SIZE)
    for _ in range(1200):  # the video itself is too large to keep; its one picture stands for it
        writer.write(preview)
    writer.release()
    (folder / "v.mp4").rename(folder / "video.hevc")
    assert make(main, "comma2k19", folder, "--every", "2", "--out", tmp_path / "bag") == 0
    bag = SeenBag(tmp_path / "bag")
    odometry = bag.odometry()
    moments = (odometry.stamps - 1_000_000_000 * 10**9) * 1e-9
    can = np.load(COMMA / "processed_log" / "CAN" / "speed" / "value").ravel()
    speed = np.interp(moments, np.load(COMMA / "processed_log" / "CAN" / "speed" / "t"), can)
    assert np.median(np.abs(odometry.linear[:, 0] - speed)) < 0.3
    assert np.median(np.abs(odometry.linear[:, 1])) < 0.4  # the camera looks 0.8 degrees to the side
    steering = np.load(COMMA / "processed_log" / "CAN" / "steering_angle" / "value")
    wheel = np.interp(moments, np.load(COMMA / "processed_log" / "CAN" / "steering_angle" / "t"), steering)
    curvature = odometry.angular[:, 2] / odometry.linear[:, 0]
    assert np.corrcoef(wheel, curvature)[0, 1] > 0.6  # both are positive to the left
    assert np.abs(odometry.rotation[:, 2, 2]).min() > 0.99  # up stays up
    assert len(bag.images("front_wide")) == 600
