"""The synthetic drive's bag has what a recorded one has, and its calibration fits its pictures."""

from pathlib import Path

import numpy as np
import pytest

from alpamayo_ros.core.types import Frame
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.inputs import NAVIGATION_TOPIC
from alpamayo_ros.sensors.decode import decode
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.sim.rig import CAMERAS, rig
from alpamayo_ros.tools.synthetic_drive import START_NS, main

SEED = 3
IMAGES = [f"/camera/{name}/image/compressed" for name in CAMERAS]


def written(out: Path, *options: str) -> BagReader:
    assert main(["--duration", "1", "--seed", str(SEED), "--out", str(out), *options]) == 0
    return BagReader(out)


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> BagReader:
    return written(tmp_path_factory.mktemp("drive") / "bag")


def stamp_of(message: object) -> int:
    stamp = message.header.stamp  # type: ignore[attr-defined]
    return int(stamp.sec) * 10**9 + int(stamp.nanosec)


def test_the_topics_of_a_recorded_drive_and_calibrations(bag: BagReader) -> None:
    images = dict.fromkeys(IMAGES, 11)
    calibrations = {f"/camera/{name}/camera_info": 11 for name in CAMERAS}
    wanted = {**images, **calibrations, "/odometry": 51, "/tf": 51, "/tf_static": 1, NAVIGATION_TOPIC: 1}
    assert {topic: bag.count(topic) for topic in bag.topics} == wanted


@pytest.mark.parametrize(("form", "most"), [("jpeg", 5.0), ("png", 0.0)])
def test_images_decode_to_what_was_rendered(tmp_path: Path, form: str, most: float) -> None:
    drive = record_drive(SEED, 1.1, image_size=(180, 320))
    names = list(CAMERAS)
    for message in written(tmp_path / "bag", "--format", form).messages(IMAGES):
        stamp_ns = stamp_of(message.message)
        rendered = drive.images[(stamp_ns - START_NS) // 100_000_000, names.index(message.topic.split("/")[2])]
        frame = Frame(1, 1, stamp_ns, message.message.data, message.message.format)
        assert np.abs(decode(frame).astype(int) - rendered).mean() <= most
        assert message.receive_ns == stamp_ns


def test_camera_info_and_static_transforms_are_the_rig(bag: BagReader) -> None:
    cameras = rig(320, 180)
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
    drive = record_drive(SEED, 1.1, image_size=(16, 16))
    odometry = [m.message for m in bag.messages(["/odometry"])]
    assert set(np.diff([stamp_of(message) for message in odometry])) == {20_000_000}
    assert np.allclose([m.pose.pose.position.x for m in odometry[::5]], drive.positions[:, 0])
    assert np.allclose([m.twist.twist.linear.x for m in odometry[::5]], drive.speeds)


def test_the_twist_is_how_the_poses_change(bag: BagReader) -> None:
    odometry = [m.message for m in bag.messages(["/odometry"])]
    xy = np.array([[m.pose.pose.position.x, m.pose.pose.position.y] for m in odometry])
    speed = np.array([m.twist.twist.linear.x for m in odometry])
    driven = np.linalg.norm(np.diff(xy, axis=0), axis=1) / 0.02
    assert np.allclose(driven, (speed[1:] + speed[:-1]) / 2, atol=1e-3)


def test_messages_get_lost_late_and_noisy_when_asked(tmp_path: Path, bag: BagReader) -> None:
    worse = written(tmp_path / "bag", "--drop", "0.3", "--jitter", "0.05", "--noise", "0.1")
    assert 0.5 * 44 < sum(worse.count(topic) for topic in IMAGES) < 0.9 * 44
    late = [message.receive_ns - stamp_of(message.message) for message in worse.messages(["/odometry"])]
    assert min(late) >= 0
    assert 20_000_000 < max(late) <= 50_000_000
    clean = {stamp_of(m.message): m.message.pose.pose.position.x for m in bag.messages(["/odometry"])}
    noise = [m.message.pose.pose.position.x - clean[stamp_of(m.message)] for m in worse.messages(["/odometry"])]
    assert 0.03 < np.std(noise) < 0.3


def test_navigation_changes_are_written(tmp_path: Path) -> None:
    assert main(["--duration", "12", "--seed", "2", "--size", "16", "16", "--out", str(tmp_path / "bag")]) == 0
    texts = [m.message.data for m in BagReader(tmp_path / "bag").messages([NAVIGATION_TOPIC])]
    drive = record_drive(2, 12.0, image_size=(16, 16))
    said = [text or "" for text in drive.navigation]
    assert set(said) <= set(texts)
    assert "Turn left in 30m" in texts


def test_an_existing_bag_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["--duration", "0.1", "--out", str(tmp_path / "bag")]) == 0
    assert main(["--duration", "0.1", "--out", str(tmp_path / "bag")]) == 1
    assert "error: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--seed", "-1"], "a world of seed -1, expected at least 0"),
        (["--drop", "2"], "drop 2.0: expected 0 to 0.9"),
        (["--size", "8", "16"], "pictures of 8x16 pixels, expected at least 16x16"),
    ],
)
def test_what_cant_be_is_named(tmp_path: Path, capsys: pytest.CaptureFixture, options: list[str], message: str) -> None:
    assert main([*options, "--out", str(tmp_path / "bag")]) == 1
    assert capsys.readouterr().err == f"error: {message}\n"
