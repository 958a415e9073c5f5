"""The synthetic drive's bag has what a recorded one has, and its calibration fits its pictures."""

from pathlib import Path

import numpy as np
import pytest

from alpamayo_ros.core.types import Frame
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.sensors.decode import decode
from alpamayo_ros.sim.drive import synthetic_drive
from alpamayo_ros.tools.synthetic_drive import main

CAMERAS = ["cross_left", "cross_right", "front_tele", "front_wide"]


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> BagReader:
    out = tmp_path_factory.mktemp("drive") / "bag"
    assert main(["--duration", "1", "--seed", "3", "--out", str(out)]) == 0
    return BagReader(out)


def test_the_topics_of_a_recorded_drive_and_calibrations(bag: BagReader) -> None:
    images = {f"/camera/{name}/image/compressed": 11 for name in CAMERAS}
    calibrations = {f"/camera/{name}/camera_info": 11 for name in CAMERAS}
    wanted = {**images, **calibrations, "/odometry": 51, "/tf": 51, "/tf_static": 1}
    assert {topic: bag.count(topic) for topic in bag.topics} == wanted


def test_images_decode_to_what_was_rendered(bag: BagReader) -> None:
    rendered = {(stamp, camera): picture for stamp, camera, picture in synthetic_drive(1, 3).images()}
    for message in bag.messages([f"/camera/{name}/image/compressed" for name in CAMERAS]):
        stamp = message.message.header.stamp
        stamp_ns = stamp.sec * 10**9 + stamp.nanosec
        frame = Frame(1, 1, stamp_ns, message.message.data, message.message.format)
        difference = np.abs(decode(frame).astype(int) - rendered[stamp_ns, message.topic.split("/")[2]])
        assert difference.mean() < 4
        assert message.receive_ns == stamp_ns


def test_camera_info_and_static_transforms_are_the_rig(bag: BagReader) -> None:
    cameras = synthetic_drive(1, 3).cameras
    for message in bag.messages([f"/camera/{name}/camera_info" for name in CAMERAS]):
        model = cameras[message.topic.split("/")[2]]
        assert np.allclose(message.message.k.reshape(3, 3), model.matrix)
        assert (message.message.width, message.message.height) == (320, 180)
    (static,) = bag.messages(["/tf_static"])
    links = {t.child_frame_id: t for t in static.message.transforms}
    assert set(links) == set(CAMERAS) | {f"{name}_optical_frame" for name in CAMERAS}
    rotation = links["cross_left"].transform.rotation
    assert 2 * np.degrees(np.arctan2(rotation.z, rotation.w)) == pytest.approx(60)


def test_the_odometry_is_the_drives(bag: BagReader) -> None:
    track = synthetic_drive(1, 3).track
    odometry = [m.message for m in bag.messages(["/odometry"])]
    assert np.allclose([m.pose.pose.position.x for m in odometry], track.position[:, 0])
    assert np.allclose([m.twist.twist.linear.x for m in odometry], track.linear[:, 0])


def test_an_existing_bag_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--duration", "0.1", "--out", str(tmp_path / "bag")]) == 0
    assert main(["--duration", "0.1", "--out", str(tmp_path / "bag")]) == 1
    assert "error: " in capsys.readouterr().err


def test_a_negative_seed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--seed", "-1", "--out", str(tmp_path / "bag")]) == 1
    assert capsys.readouterr().err == "error: --seed -1: expected at least 0\n"
