"""A scene of nuScenes becomes a bag: tables resolved, cameras named, the world where it was."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from landmark import LAMP, SIZE, SeenBag, base_pose, make, matrix, optical_in_base, picture, pinhole, seen, times

from alpamayo_ros.core.rotation import matrix_from_rpy, quaternion_from_matrix
from alpamayo_ros.evaluation.rig import load_rig
from alpamayo_ros.tools.make_bag import main

ROOT = Path(__file__).parents[3]
NUSCENES = ROOT.parent / "shared" / "data" / "nuscenes_mini_vis4d"
START_US = 1_533_151_603_000_000
WORLD = matrix(matrix_from_rpy(0, 0, -2.0), (600.0, 1647.0, 0.0))  # map <- where base_link is at time 0
RIG = {
    "CAM_FRONT": optical_in_base(1.72, 0.0, 1.49, pitch=0.02),
    "CAM_FRONT_LEFT": optical_in_base(1.57, 0.5, 1.51, yaw=0.25),
}


def w_first(rotation: np.ndarray) -> list[float]:
    x, y, z, w = map(float, quaternion_from_matrix(rotation))
    return [w, x, y, z]


class Tables:
    """nuScenes' tables, record by record."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def add(self, table: str, token: str, **fields: Any) -> str:
        self.tables.setdefault(table, []).append({"token": token, **fields})
        return token

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, records in self.tables.items():
            (folder / f"{name}.json").write_text(json.dumps(records))


def dataset(folder: Path) -> Path:
    """Two scenes; the second one, of 2 s, passes the lamp, with cameras at 12 Hz, one after the other."""
    tables = Tables()
    for name in ("scene-0001", "scene-0002"):
        tables.add("scene", name, name=name)
    tables.add("sample", "other", scene_token="scene-0001")
    tables.add("sample", "first", scene_token="scene-0002")
    tables.add("sample", "second", scene_token="scene-0002")
    tables.add("sensor", "LIDAR_TOP", channel="LIDAR_TOP", modality="lidar")
    lidar = {"translation": [0, 0, 2], "rotation": [1, 0, 0, 0], "camera_intrinsic": []}
    tables.add("calibrated_sensor", "of LIDAR_TOP", sensor_token="LIDAR_TOP", **lidar)
    moments = [("LIDAR_TOP", t) for t in times(2.2, 20, begin=-0.1)]
    for late, (channel, optical) in enumerate(RIG.items()):
        tables.add("sensor", channel, channel=channel, modality="camera")
        tables.add(
            "calibrated_sensor",
            f"of {channel}",
            sensor_token=channel,
            translation=list(optical[:3, 3]),
            rotation=w_first(optical[:3, :3]),
            camera_intrinsic=[[150.0, 0, 158], [0, 150.0, 121], [0, 0, 1]],
        )
        moments += [(channel, t) for t in times(2, 12, begin=late * 0.011)]
    for number, (channel, t) in enumerate(reversed(moments)):  # tables are in no order
        microseconds = round(t * 1e6)
        pose = WORLD @ base_pose(microseconds * 1e-6)
        stamp = START_US + microseconds
        tables.add(
            "ego_pose", f"{number}", timestamp=stamp, translation=list(pose[:3, 3]), rotation=w_first(pose[:3, :3])
        )
        file = f"sweeps/{channel}/{stamp}.png"
        tables.add(
            "sample_data",
            f"{number}",
            sample_token="first" if t < 1 else "second",
            ego_pose_token=f"{number}",
            calibrated_sensor_token=f"of {channel}",
            timestamp=stamp,
            filename=file,
            width=SIZE[0] if channel in RIG else 0,
            height=SIZE[1] if channel in RIG else 0,
        )
        if channel in RIG:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            lamp = seen(base_pose(microseconds * 1e-6) @ RIG[channel], LAMP)
            cv2.imwrite(str(folder / file), picture(pinhole(lamp)))
    tables.write(folder / "v1.0-mini")
    return folder


def test_the_lamp_is_where_both_cameras_see_it(tmp_path: Path) -> None:
    assert make(main, "nuscenes", dataset(tmp_path / "n"), "--scene", "scene-0002", "--out", tmp_path / "bag") == 0
    bag = SeenBag(tmp_path / "bag")
    bag.check_left_turn()
    first = WORLD @ base_pose(-0.1)
    odometry = bag.odometry()
    assert np.allclose(odometry.position[0], 0, atol=1e-6)
    assert np.diff(odometry.stamps).min() >= 15_000_000
    for camera in ("front", "front_left"):
        errors = bag.lamp_errors(camera, (WORLD @ [*LAMP, 1])[:3] - first[:3, 3])
        assert len(errors) == 25
        assert max(errors) < 0.5
    assert bag.camera("front_left").position == pytest.approx([1.57, 0.5, 1.51])


def test_stamps_are_those_of_the_tables(tmp_path: Path) -> None:
    make(main, "nuscenes", dataset(tmp_path / "n"), "--scene", "scene-0002", "--out", tmp_path / "bag")
    bag = SeenBag(tmp_path / "bag")
    assert next(iter(bag.images("front"))) == START_US * 1000
    assert next(iter(bag.images("front_left"))) == (START_US + 11_000) * 1000


def test_the_rig_for_it_has_the_same_topics() -> None:
    rig = load_rig(ROOT / "config" / "nuscenes_6cam.yaml")
    assert {camera.topic for camera in rig.cameras} == {f"camera/{each.name}/image/compressed" for each in rig.cameras}
    assert {camera.name for camera in rig.cameras} >= {channel.lower().removeprefix("cam_") for channel in RIG}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "has scene-0001, scene-0002; choose one of them"),
        (["--scene", "scene-9"], "scene scene-9:"),
        (["--scene", "scene-0001"], "sample_data has nothing of scene-0001"),
        (["--version", "v1.0-test"], "has the tables v1.0-mini; choose one of them, not v1.0-test"),
    ],
)
def test_a_choice_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture, arguments: list[str], message: str
) -> None:
    assert make(main, "nuscenes", dataset(tmp_path / "n"), *arguments, "--out", tmp_path / "bag") == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("table", ["sample", "sample_data", "ego_pose", "calibrated_sensor", "sensor", "scene"])
@pytest.mark.parametrize(
    ("content", "message"), [(None, "can't be read"), ("[", "can't be read"), ('[{"token": "first"}]', "")]
)
def test_a_table_that_is_none_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, table: str, content: str | None, message: str
) -> None:
    folder = dataset(tmp_path / "n")
    file = folder / "v1.0-mini" / f"{table}.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert make(main, "nuscenes", folder, "--scene", "scene-0002", "--out", tmp_path / "bag") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert "v1.0-mini" in error


def test_images_that_were_not_downloaded_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = dataset(tmp_path / "n")
    next((folder / "sweeps" / "CAM_FRONT").iterdir()).unlink()
    assert make(main, "nuscenes", folder, "--scene", "scene-0002", "--out", tmp_path / "bag") == 1
    assert "1 of 25 images of CAM_FRONT are missing, such as" in capsys.readouterr().err


def read(name: str) -> Any:
    return json.loads((NUSCENES / name).read_text())


def real_scene(folder: Path, scene: str, log: str) -> Path:
    """Real images, calibration and 50 Hz poses, in tables that are made here: the real ones are too large to keep."""
    tables = Tables()
    tables.add("scene", "it", name=scene)
    tables.add("sample", "all", scene_token="it")
    keyframes = [each for each in read("mini_val_poses_calib.json") if each["scene_name"] == scene]
    channels = {each["token"]: each["channel"] for each in read("v1.0-mini/sensor.json")}
    tables.tables["sensor"] = read("v1.0-mini/sensor.json")
    tables.tables["calibrated_sensor"] = calibrated = read("v1.0-mini/calibrated_sensor.json")
    lidar = next(each["token"] for each in calibrated if channels[each["sensor_token"]] == "LIDAR_TOP")
    for pose in read(f"can_bus/{scene}_pose.json"):
        token = f"pose {pose['utime']}"
        tables.add("ego_pose", token, timestamp=pose["utime"], translation=pose["pos"], rotation=pose["orientation"])
        tables.add("sample_data", token, sample_token="all", ego_pose_token=token, calibrated_sensor_token=lidar)
    for file in sorted(NUSCENES.glob(f"samples/CAM_*/{log}-*.jpg")):
        channel = file.parent.name
        sensors = [each for each in calibrated if channels[each["sensor_token"]] == channel]
        if keyframes:
            wanted = np.array(keyframes[0][channel]["intrinsics"])
            sensors = [each for each in sensors if np.allclose(each["camera_intrinsic"], wanted, atol=0.01)]
        tables.add(
            "sample_data",
            file.stem,
            sample_token="all",
            ego_pose_token="",
            calibrated_sensor_token=sensors[0]["token"],
            timestamp=int(file.stem.rsplit("_", 1)[1]),
            filename=str(file.relative_to(NUSCENES)),
            width=1600,
            height=900,
        )
    tables.write(folder / "v1.0-mini")
    (folder / "samples").symlink_to(NUSCENES / "samples")
    return folder


@pytest.mark.skipif(not NUSCENES.exists(), reason=f"no recorded drive in {NUSCENES}")
class TestRealScenes:
    def test_cameras_are_where_nuscenes_says(self, tmp_path: Path) -> None:
        folder = real_scene(tmp_path / "n", "scene-0103", "n008")
        assert make(main, "nuscenes", folder, "--out", tmp_path / "bag") == 0
        bag = SeenBag(tmp_path / "bag")
        odometry = bag.odometry()
        origin = np.array(read("can_bus/scene-0103_pose.json")[0]["pos"])
        (_, keyframe) = [each for each in read("mini_val_poses_calib.json") if each["scene_name"] == "scene-0103"][:2]
        for channel in (
            "CAM_FRONT",
            "CAM_FRONT_LEFT",
            "CAM_FRONT_RIGHT",
            "CAM_BACK",
            "CAM_BACK_LEFT",
            "CAM_BACK_RIGHT",
        ):
            name = channel.lower().removeprefix("cam_")
            stamp, image = list(bag.images(name).items())[1]
            assert stamp == keyframe[channel]["timestamp"] * 1000
            assert image.shape == (900, 1600, 3)
            model = bag.camera(name)
            camera_in_map = np.array(keyframe[channel]["extrinsics"])
            point_in_map = (camera_in_map @ [2.0, 1.0, 15.0, 1.0])[:3]  # right, down and ahead of the camera
            pixels, visible = model.project(seen(odometry.pose_at(stamp), point_in_map - origin))
            expected = np.array(keyframe[channel]["intrinsics"]) @ [2.0, 1.0, 15.0]
            assert visible
            assert (
                np.linalg.norm(pixels - expected[:2] / expected[2]) < 30
            )  # the CAN bus's poses lack 1.0 degree of pitch
            place = odometry.pose_at(stamp) @ [*model.position, 1.0]
            assert np.allclose(place[:3] + origin, camera_in_map[:3, 3], atol=0.05)

    @pytest.mark.parametrize(("scene", "log", "turn"), [("scene-0061", "n015", 98), ("scene-0103", "n008", None)])
    def test_turns_and_speeds_are_those_of_the_can_bus(
        self, tmp_path: Path, scene: str, log: str, turn: float | None
    ) -> None:
        assert make(main, "nuscenes", real_scene(tmp_path / "n", scene, log), "--out", tmp_path / "bag") == 0
        odometry = SeenBag(tmp_path / "bag").odometry()
        can = read(f"can_bus/{scene}_pose.json")
        speed = np.interp(odometry.stamps, [each["utime"] * 1000 for each in can], [each["vel"][0] for each in can])
        assert np.median(np.abs(odometry.linear[:, 0] - speed)) < 0.2
        seconds = np.diff(odometry.stamps) * 1e-9
        turned = np.degrees((odometry.angular[1:, 2] * seconds).sum())
        if turn is not None:
            assert turned == pytest.approx(turn, abs=3)  # to the left
