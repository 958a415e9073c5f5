"""KITTI's odometry benchmark becomes a bag that shows the world where it was."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from landmark import LAMP, SeenBag, base_pose, make, optical_in_base, picture, seen, times

from alpamayo_ros.evaluation.datasets.kitti_odometry import CAMERA_IN_BASE
from alpamayo_ros.tools.make_bag import main

KITTI = Path(__file__).parents[3].parent / "shared" / "data" / "kitti06_stereo"
BASELINE = 0.54  # m
LEFT = optical_in_base(*CAMERA_IN_BASE)
PROJECTIONS = {number: np.array([[150.0, 0, 158, -150.0 * x], [0, 150, 121, 0], [0, 0, 1, 0]]) for number, x in
               {0: 0.0, 1: BASELINE, 2: -0.06, 3: BASELINE - 0.06}.items()}  # fmt: skip


def project(projection: np.ndarray, point: np.ndarray) -> tuple[float, float]:
    x, y, w = projection @ [*point, 1.0]
    return x / w, y / w


def benchmark(folder: Path, numbers: tuple[int, ...] = (0, 1)) -> Path:
    """The benchmark's folder, with sequence 06: 2 s past a lamp."""
    sequence = folder / "sequences" / "06"
    sequence.mkdir(parents=True)
    (folder / "poses").mkdir()
    moments = times(2, 10)
    cameras = [base_pose(t) @ LEFT for t in moments]
    rows = [(np.linalg.inv(cameras[0]) @ camera)[:3].ravel() for camera in cameras]
    np.savetxt(folder / "poses" / "06.txt", rows, fmt="%.9e")
    np.savetxt(sequence / "times.txt", moments, fmt="%.6e")
    lines = [f"P{number}: " + " ".join(map(str, p.ravel())) for number, p in PROJECTIONS.items()]
    (sequence / "calib.txt").write_text("\n".join(lines) + "\n")
    for number in numbers:
        (sequence / f"image_{number}").mkdir()
        for at, camera in enumerate(cameras):
            pixel = project(PROJECTIONS[number], seen(camera, LAMP))
            cv2.imwrite(str(sequence / f"image_{number}" / f"{at:06d}.png"), picture(pixel))
    return folder


@pytest.mark.parametrize("numbers", [(0, 1), (0, 1, 2, 3)])
def test_the_lamp_is_where_both_cameras_see_it(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    assert make(main, "kitti", benchmark(tmp_path / "kitti", numbers), "--out", tmp_path / "bag") == 0
    bag = SeenBag(tmp_path / "bag")
    bag.check_left_turn()
    for camera in ("front_wide", "front_tele"):
        errors = bag.lamp_errors(camera, LAMP)
        assert len(errors) == 21
        assert max(errors) < 0.3
    left, right = bag.camera("front_wide").position, bag.camera("front_tele").position
    assert np.allclose(left - right, [0, BASELINE, 0])
    assert left[1] == pytest.approx(0.06 if 2 in numbers else 0.0)  # colour before gray


def test_a_sequence_by_its_name_or_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = benchmark(tmp_path / "kitti", (0,))
    assert make(main, "kitti", folder / "sequences" / "06", "--out", tmp_path / "by_folder") == 0
    (folder / "sequences" / "07").mkdir()
    assert make(main, "kitti", folder, "--sequence", "06", "--out", tmp_path / "by_name") == 0
    assert make(main, "kitti", folder, "--out", tmp_path / "none") == 1
    assert "has 06, 07; choose one of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "poses" / "06.txt").unlink(), "there are no poses of"),
        (
            lambda folder: (folder / "sequences" / "06" / "calib.txt").write_text("P0: 1 2\n"),
            "P0 is 2 numbers; expected",
        ),
        (lambda folder: (folder / "sequences" / "06" / "calib.txt").write_text("Tr: 1 2\n"), "P0 is missing; expected"),
        (lambda folder: (folder / "sequences" / "06" / "times.txt").write_text("0\n0.1\n"), "only 2 times"),
        (lambda folder: (folder / "sequences" / "06" / "image_0").rename(folder / "gone"), "has no images: expected"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture, spoil, message: str) -> None:
    folder = benchmark(tmp_path / "kitti", (0,))
    spoil(folder)
    assert make(main, "kitti", folder, "--out", tmp_path / "bag") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "bag").exists()


def test_something_else(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert make(main, "kitti", tmp_path, "--out", tmp_path / "bag") == 1
    assert "is no recording of KITTI" in capsys.readouterr().err


@pytest.mark.skipif(not KITTI.exists(), reason=f"no recorded drive in {KITTI}")
def test_a_recorded_drive_in_the_benchmarks_layout(tmp_path: Path) -> None:
    sequence = tmp_path / "sequences" / "06"
    (tmp_path / "poses").mkdir()
    sequence.mkdir(parents=True)
    (sequence / "image_0").symlink_to(KITTI / "image_l")
    (sequence / "image_1").symlink_to(KITTI / "image_r")
    (sequence / "times.txt").symlink_to(KITTI / "times.txt")
    (tmp_path / "poses" / "06.txt").symlink_to(KITTI / "poses_full_06.txt")
    rows = (KITTI / "calib.txt").read_text().split()
    (sequence / "calib.txt").write_text(f"P0: {' '.join(rows[:12])}\nP1: {' '.join(rows[12:])}\n")
    assert make(main, "kitti", tmp_path, "--out", tmp_path / "bag") == 0
    bag = SeenBag(tmp_path / "bag")
    odometry = bag.odometry()
    assert len(bag.images("front_wide")) == len(bag.images("front_tele")) == 51
    assert np.all((odometry.linear[:116, 0] > 10.5) & (odometry.linear[:116, 0] < 12.5))
    assert np.abs(odometry.linear[:116, 1:]).max() < 0.8
    left, right = bag.camera("front_wide"), bag.camera("front_tele")
    assert (left.width, left.height) == (1226, 370)
    assert left.position[1] - right.position[1] == pytest.approx(0.537, abs=0.001)
    check_epipolar(bag)


def check_epipolar(bag: SeenBag) -> None:
    """What moves in the picture fits the calibration and the odometry between two frames: the road is where it is."""
    model, odometry = bag.camera("front_wide"), bag.odometry()
    (first_ns, first), (second_ns, second) = list(bag.images("front_wide").items())[20:22]
    grays = [cv2.cvtColor(image, cv2.COLOR_BGR2GRAY) for image in (first, second)]
    corners = cv2.goodFeaturesToTrack(grays[0], 400, 0.01, 8)
    moved, found, _ = cv2.calcOpticalFlowPyrLK(grays[0], grays[1], corners, None)
    a, b = corners[found.ravel() == 1, 0].astype(float), moved[found.ravel() == 1, 0].astype(float)
    step = np.linalg.inv(odometry.pose_at(second_ns)) @ odometry.pose_at(first_ns)
    lever = model.position  # of the camera; the essential matrix is in base_link's axes
    translation = step[:3, :3] @ lever + step[:3, 3] - lever
    cross = np.array([[0, -translation[2], translation[1]], [translation[2], 0, -translation[0]],
                      [-translation[1], translation[0], 0]])  # fmt: skip
    residual = np.abs(np.einsum("ni,ij,nj->n", model.rays(b), cross @ step[:3, :3], model.rays(a)))
    angle = residual / np.linalg.norm(translation)
    assert len(a) > 150
    assert np.median(angle) < 2e-3  # rad; about a pixel. Without the turn, or with the axes mixed up, it is far more
