"""The anchor camera's calibration comes out of a bag, and the path into its picture."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from drives import START_NS, record, rig, straight, write_bag

from alpamayo_ros.core.types import HORIZON, Frame
from alpamayo_ros.evaluation.bag import BagReader, BagWriter
from alpamayo_ros.evaluation.calibration import anchor_camera
from alpamayo_ros.evaluation.drive_bag import DriveBag
from alpamayo_ros.evaluation.picture import CHOSEN, Caption, TickPicture, draw_tick
from alpamayo_ros.sensors.camera_model import CameraModel

CAMERA = CameraModel(480, 270, 300.0, 300.0, 240.0, 135.0, "plumb_bob", (-0.1, 0.01, 0, 0, 0), np.array([1.5, 0, 1.4]))


def calibrated_bag(path: Path, model: CameraModel) -> Path:
    with BagWriter(path) as bag:
        drive = DriveBag(bag)
        drive.mountings(START_NS, {"front_wide": (model.position, model.rotation)})
        drive.camera_info("front_wide", START_NS, model)
    return path


def test_camera_info_and_static_transforms_of_a_bag_are_used(tmp_path: Path) -> None:
    with BagReader(calibrated_bag(tmp_path / "bag", CAMERA)) as bag:
        found, why = anchor_camera(bag, rig())
    assert why == ""
    assert found is not None
    points = np.array([[10.0, 1.0, 0.0], [30.0, -4.0, 0.0]])
    assert found.project(points)[0] == pytest.approx(CAMERA.project(points)[0])


def test_parameters_need_nothing_of_the_bag(tmp_path: Path) -> None:
    settings = rig(overlay__camera_pose=[1.5, 0, 1.4, 0, 0, 0], overlay__intrinsics=[480, 270, 300, 300, 240, 135])
    with BagReader(write_bag(tmp_path / "bag", record(straight(5.0), 0.2))) as bag:
        assert anchor_camera(bag, settings)[0] is not None
        assert anchor_camera(bag, rig()) == (None, anchor_camera(bag, rig())[1])
        assert "CameraInfo" in anchor_camera(bag, rig())[1]


def test_a_camera_that_is_not_calibrated_is_a_reason_and_no_error(tmp_path: Path) -> None:
    class Uncalibrated:
        def __getattr__(self, name: str) -> float:
            return 0.0 if name in ("focal_x", "focal_y") else getattr(CAMERA, name)

    with BagReader(calibrated_bag(tmp_path / "bag", Uncalibrated())) as bag:  # type: ignore[arg-type]
        found, why = anchor_camera(bag, rig())
    assert found is None
    assert "is it calibrated?" in why


def test_the_path_is_in_the_picture_where_the_camera_is_known(tmp_path: Path) -> None:
    gray = cv2.imencode(".jpg", np.full((270, 480, 3), 128, np.uint8))[1].tobytes()
    x = np.arange(1, HORIZON + 1) * 1.0
    path = np.stack([x, 0 * x, 0 * x], axis=-1)
    shown = TickPicture(path[:16] - 17.0, path, path[None], path)
    counts = {}
    for name, camera in {"with": CAMERA, "without": None, "other shape": replace(CAMERA, height=400)}.items():
        draw_tick(tmp_path / f"{name}.png", shown, Caption("title"), Frame(1, 1, 0, gray, "jpeg"), camera)
        picture = cv2.cvtColor(cv2.imread(str(tmp_path / f"{name}.png")), cv2.COLOR_BGR2RGB)
        color = np.array([int(CHOSEN[i : i + 2], 16) for i in (1, 3, 5)])
        counts[name] = int((np.abs(picture[:, 600:].astype(int) - color).max(axis=-1) < 40).sum())
    assert counts["with"] > 300
    assert counts["without"] == counts["other shape"] == 0
