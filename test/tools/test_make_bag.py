"""A recording becomes a bag: known motions come out as known odometry, images as they are, mistakes by name."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest

from alpamayo_ros.core.rotation import matrix_from_quaternion, matrix_from_rpy, quaternion_from_matrix
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.tools.make_bag import main

KITTI = Path(__file__).parents[2].parent / "shared" / "data" / "kitti06_stereo"
SPEED, YAW_RATE = 8.0, 0.4  # m/s, rad/s: a left turn of 20 m radius
START_NS = 1_000_000_000 * 1_000_000_000
# What the optical axes are in the vehicle: right is -y, down is -z, forward is x.
OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
MOUNTING = (1.6, 0.2, 1.5, 0.0, 0.05, 0.1)  # x, y, z, roll, pitch, yaw of the camera in base_link


def homogeneous(rotation: np.ndarray, position: Sequence[float]) -> np.ndarray:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, position
    return pose


def left_turn(times: np.ndarray) -> np.ndarray:
    """Poses [N, 4, 4] of base_link on a circle to the left, from the origin along x."""
    radius = SPEED / YAW_RATE
    angle = YAW_RATE * times
    positions = np.column_stack([radius * np.sin(angle), radius * (1 - np.cos(angle)), 0 * angle])
    return np.array([homogeneous(matrix_from_rpy(0, 0, a), p) for a, p in zip(angle, positions, strict=True)])


def as_kitti(base: np.ndarray, mounting: Sequence[float] = (0.0,) * 6) -> np.ndarray:
    """The same drive as rows of 3x4 matrices of a camera mounted there, in the world of its first pose."""
    base_from_optical = homogeneous(matrix_from_rpy(*mounting[3:]) @ OPTICAL, mounting[:3])
    camera = base @ base_from_optical
    return (np.linalg.inv(camera[0]) @ camera)[:, :3].reshape(-1, 12)


class Recording:
    """A folder of images, a file of times and a file of poses."""

    def __init__(self, folder: Path, images: int = 20, times: int = 30) -> None:
        self.folder = folder
        self.times = np.arange(times) * 0.1 + np.random.default_rng(0).uniform(-0.004, 0.004, times)
        self.times[0] = 0
        self.kitti(as_kitti(left_turn(self.times)))
        (folder / "times.txt").write_text("".join(f"{time:.9e}\n" for time in self.times))
        (folder / "left").mkdir()
        for number in range(images):
            pixels = np.full((12, 20, 3), 10 * number, np.uint8)
            cv2.imwrite(str(folder / "left" / f"{number:06d}.jpg"), pixels)

    def kitti(self, rows: np.ndarray) -> None:
        np.savetxt(self.folder / "poses.txt", rows, fmt="%.12e")

    def make(self, *more: str | Path, form: str = "kitti", camera: str = "front_wide=left") -> int:
        name, folder = camera.split("=")
        arguments = ["images", "--camera", f"{name}={self.folder / folder}", "--pose-format", form]
        arguments += ["--times", self.folder / "times.txt", "--poses", self.folder / "poses.txt"]
        return main([str(word) for word in [*arguments, "--out", self.folder / "bag", *more]])

    @property
    def bag(self) -> BagReader:
        return BagReader(self.folder / "bag")

    def odometry(self) -> "Odometry":
        return Odometry([m.message for m in self.bag.messages(["/odometry"])])


class Odometry:
    def __init__(self, messages: list) -> None:
        self.messages = messages
        self.stamps = np.array([m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for m in messages])
        self.position = np.array([vector(m.pose.pose.position) for m in messages])
        self.rotation = matrix_from_quaternion(
            np.array([[*vector(m.pose.pose.orientation), m.pose.pose.orientation.w] for m in messages])
        )
        self.linear = np.array([vector(m.twist.twist.linear) for m in messages])
        self.angular = np.array([vector(m.twist.twist.angular) for m in messages])


def vector(message: object) -> list[float]:
    return [message.x, message.y, message.z]


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path)


class TestAKnownCurve:
    @pytest.mark.parametrize("mounting", [(0.0,) * 6, MOUNTING])
    def test_forward_is_x_left_is_y_and_the_twist_fits(self, recording: Recording, mounting: tuple[float, ...]) -> None:
        recording.kitti(as_kitti(left_turn(recording.times), mounting))
        assert recording.make("--camera-to-base", *map(str, mounting)) == 0
        got, wanted = recording.odometry(), left_turn(recording.times)
        assert got.position[5, 0] > 3.5  # forward
        assert got.position[-1, 1] > 10  # left
        assert np.allclose(got.position, wanted[:, :3, 3], atol=1e-6)
        assert np.allclose(got.rotation, wanted[:, :3, :3], atol=1e-6)
        inner = slice(1, -1)  # the ends have a difference to one side only
        assert np.allclose(got.linear[inner], [SPEED, 0, 0], atol=0.03)
        assert np.allclose(got.angular, [0, 0, YAW_RATE], atol=1e-6)
        assert np.allclose(got.linear[[0, -1]], [SPEED, 0, 0], atol=0.25)

    def test_the_same_drive_as_tum(self, recording: Recording) -> None:
        poses = left_turn(recording.times)
        rows = np.column_stack([recording.times, poses[:, :3, 3], quaternion_from_matrix(poses[:, :3, :3])])
        np.savetxt(recording.folder / "poses.txt", rows, fmt="%.9f", header="time x y z qx qy qz qw")
        assert recording.make(form="tum") == 0
        assert np.allclose(recording.odometry().position, poses[:, :3, 3], atol=1e-6)

    def test_tum_poses_of_a_mounted_camera_with_camera_axes(self, recording: Recording) -> None:
        poses = left_turn(recording.times)
        camera = poses @ homogeneous(matrix_from_rpy(*MOUNTING[3:]) @ OPTICAL, MOUNTING[:3])
        rows = np.column_stack([recording.times, camera[:, :3, 3], quaternion_from_matrix(camera[:, :3, :3])])
        np.savetxt(recording.folder / "poses.txt", rows, fmt="%.9f")
        mounting = ["--camera-to-base", *map(str, MOUNTING)]
        assert recording.make("--pose-axes", "camera", *mounting, form="tum") == 0
        assert np.allclose(recording.odometry().position, poses[:, :3, 3], atol=1e-5)

    def test_frames_and_transforms(self, recording: Recording) -> None:
        assert recording.make("--camera-to-base", *map(str, MOUNTING)) == 0
        odometry = recording.odometry()
        (static,) = recording.bag.messages(["/tf_static"])
        moving = [m.message.transforms[0] for m in recording.bag.messages(["/tf"])]
        assert {(m.header.frame_id, m.child_frame_id) for m in odometry.messages} == {("odom", "base_link")}
        assert {(m.header.frame_id, m.child_frame_id) for m in moving} == {("odom", "base_link")}
        assert np.allclose([vector(m.transform.translation) for m in moving], odometry.position)
        links = {(m.header.frame_id, m.child_frame_id): m.transform for m in static.message.transforms}
        assert set(links) == {("base_link", "front_wide"), ("front_wide", "front_wide_optical_frame")}
        assert np.allclose(vector(links["base_link", "front_wide"].translation), MOUNTING[:3])


class TestImagesAndTimes:
    def test_files_are_carried_as_they_are_at_their_times(self, recording: Recording) -> None:
        assert recording.make() == 0
        images = list(recording.bag.messages(["/camera/front_wide/image/compressed"]))
        stamps = [m.message.header.stamp.sec * 10**9 + m.message.header.stamp.nanosec for m in images]
        assert stamps == [START_NS + round(time * 1e9) for time in recording.times[:20]]
        assert [m.receive_ns for m in images] == stamps
        assert images[3].message.format == "jpeg"
        assert images[3].message.data.tobytes() == (recording.folder / "left" / "000003.jpg").read_bytes()
        assert images[3].message.header.frame_id == "front_wide_optical_frame"

    def test_one_image_per_time_for_as_many_as_there_are_and_poses_for_all(self, recording: Recording) -> None:
        assert recording.make() == 0
        assert recording.bag.count("/camera/front_wide/image/compressed") == 20
        assert recording.bag.count("/odometry") == 30
        assert "/clock" not in recording.bag.topics

    def test_numbers_in_names_count_by_their_value(self, recording: Recording) -> None:
        for file in (recording.folder / "left").iterdir():
            file.rename(file.with_name(f"frame{int(file.stem)}.jpg"))
        assert recording.make() == 0
        images = list(recording.bag.messages(["/camera/front_wide/image/compressed"]))
        assert images[10].message.data.tobytes() == (recording.folder / "left" / "frame10.jpg").read_bytes()

    def test_other_formats_become_png(self, recording: Recording) -> None:
        (recording.folder / "other").mkdir()
        pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 3), dtype=np.uint8)
        cv2.imwrite(str(recording.folder / "other" / "0.bmp"), pixels)
        assert recording.make(camera="front_wide=other") == 0
        (image,) = recording.bag.messages(["/camera/front_wide/image/compressed"])
        assert image.message.format == "png"
        assert np.array_equal(cv2.imdecode(image.message.data, cv2.IMREAD_COLOR), pixels)

    def test_images_can_arrive_late(self, recording: Recording) -> None:
        assert recording.make("--latency", "0.08") == 0
        for message in recording.bag.messages():
            stamp = getattr(message.message, "header", None)
            if stamp is not None:
                late = message.receive_ns - (stamp.stamp.sec * 10**9 + stamp.stamp.nanosec)
                assert late == (80_000_000 if "image" in message.topic else 0)

    def test_unix_times_stay_as_they_are(self, recording: Recording) -> None:
        times = [f"{1_700_000_000 + number}.123456789" for number in range(30)]
        (recording.folder / "times.txt").write_text("\n".join(times))
        assert recording.make() == 0
        assert recording.odometry().stamps[1] == 1_700_000_001_123_456_789

    def test_every_third_image(self, recording: Recording) -> None:
        assert recording.make("--every", "3") == 0
        images = list(recording.bag.messages(["/camera/front_wide/image/compressed"]))
        stamps = [m.message.header.stamp.sec * 10**9 + m.message.header.stamp.nanosec for m in images]
        assert stamps == [START_NS + round(time * 1e9) for time in recording.times[:20:3]]
        assert images[1].message.data.tobytes() == (recording.folder / "left" / "000003.jpg").read_bytes()
        assert recording.bag.count("/odometry") == 30

    def test_a_start_stamp_moves_everything(self, recording: Recording) -> None:
        assert recording.make("--start-stamp", "50") == 0
        assert recording.odometry().stamps[0] == 50 * 10**9


class TestMistakesAreNamed:
    def refused(self, recording: Recording, capsys: pytest.CaptureFixture, *more: str, **changes: str) -> str:
        assert recording.make(*more, **changes) == 1
        assert not (recording.folder / "bag").exists()
        error = capsys.readouterr().err
        assert error.splitlines()[-1].split("\r")[-1].strip().startswith("error: ")
        return error

    def test_more_images_than_times(self, recording: Recording, capsys: pytest.CaptureFixture) -> None:
        (recording.folder / "times.txt").write_text("0\n0.1\n0.2\n")
        error = self.refused(recording, capsys)
        assert "camera front_wide has 20 images, but" in error
        assert "only 3 times" in error

    def test_more_poses_than_times(self, recording: Recording, capsys: pytest.CaptureFixture) -> None:
        (recording.folder / "times.txt").write_text("\n".join(map(str, range(25))))
        assert "has 30 poses, but" in self.refused(recording, capsys)

    @pytest.mark.parametrize("file", ["times.txt", "poses.txt"])
    def test_a_missing_file(self, recording: Recording, capsys: pytest.CaptureFixture, file: str) -> None:
        (recording.folder / file).unlink()
        assert f"{file} can't be read" in self.refused(recording, capsys)

    def test_a_missing_folder(self, recording: Recording, capsys: pytest.CaptureFixture) -> None:
        assert "there is no folder of images at" in self.refused(recording, capsys, camera="front_wide=right")

    @pytest.mark.parametrize(
        ("file", "text", "message"),
        [
            ("times.txt", "0\n0.1\n0.05\n", "time 3 (0.050000 s) is not later than the one before (0.100000 s)"),
            ("times.txt", "0\nlater\n", "line 2: 'later' is not a time in seconds"),
            ("times.txt", "", "is empty"),
            ("times.txt", "0\n1e10\n", "line 2: 1e10 s is beyond 2038"),
            ("times.txt", "0\n1e999999999\n", "line 2: '1e999999999' is not a time"),
            ("poses.txt", "1 0 0 0 0 1 0 0 0 0 1 1e308\n", "has a value beyond 1e+09"),
            ("poses.txt", "1 2 3\n", "line 1: 3 values, expected 12"),
            ("poses.txt", "1 0 0 0 0 1 0 0 0 0 1 0\n2 0 0 0 0 1 0 0 0 0 1 0\n", "pose 2 of 2 has no rotation"),
            ("poses.txt", "1 0 0 0 0 1 0 0 0 0 1 nan\n", "not finite"),
            ("poses.txt", "1 0 0 0 0 1 0 0 0 0 1 0\n", "expected at least two"),
        ],
    )
    def test_a_bad_line(
        self, recording: Recording, capsys: pytest.CaptureFixture, file: str, text: str, message: str
    ) -> None:
        if file == "times.txt":
            recording.kitti(as_kitti(left_turn(recording.times))[:1])
        (recording.folder / file).write_text(text)
        assert message in self.refused(recording, capsys)

    @pytest.mark.parametrize("argument", ["--latency=nan", "--latency=inf", "--start-stamp=nan", "--start-stamp=1e30"])
    def test_a_number_that_is_no_time(self, recording: Recording, capsys: pytest.CaptureFixture, argument: str) -> None:
        with pytest.raises(SystemExit) as ended:
            recording.make(argument)
        assert ended.value.code == 2
        name, value = argument.split("=")
        assert f"argument {name}: '{value}': expected a number from -" in capsys.readouterr().err

    def test_a_byte_order_mark_is_no_part_of_the_first_number(self, recording: Recording) -> None:
        times = recording.folder / "times.txt"
        times.write_text("\ufeff" + times.read_text(), encoding="utf-8")
        assert recording.make() == 0

    def test_a_damaged_image_leaves_no_bag(self, recording: Recording, capsys: pytest.CaptureFixture) -> None:
        image = recording.folder / "left" / "000007.jpg"
        image.write_bytes(image.read_bytes()[:300])
        error = self.refused(recording, capsys)
        assert "000007.jpg: the JPEG file is truncated" in error
        assert not list(recording.folder.glob(".*"))

    def test_a_bag_that_is_there_already(self, recording: Recording, capsys: pytest.CaptureFixture) -> None:
        assert recording.make() == 0
        assert recording.make() == 1
        assert "bag exists; remove it or choose another name" in capsys.readouterr().err
        assert recording.make("--overwrite") == 0

    @pytest.mark.parametrize(
        ("argument", "message"),
        [("--every=0", "every 0th image: expected at least 1"), ("--start-stamp=0", "expected more than 0 s"),
         ("--latency=-1", "a latency of -1.0 s: expected at least 0 s")],
    )  # fmt: skip
    def test_numbers_that_can_not_be(
        self, recording: Recording, capsys: pytest.CaptureFixture, argument: str, message: str
    ) -> None:
        assert message in self.refused(recording, capsys, argument)

    def test_a_camera_without_a_folder(self, recording: Recording, capsys: pytest.CaptureFixture) -> None:
        assert recording.make("--camera", "front_tele") == 1
        assert "--camera front_tele: expected NAME=FOLDER" in capsys.readouterr().err


@pytest.mark.skipif(not KITTI.exists(), reason=f"no recorded drive in {KITTI}")
def test_a_recorded_drive(tmp_path: Path) -> None:
    arguments = ["--camera", f"front_wide={KITTI / 'image_l'}", "--camera", f"front_tele={KITTI / 'image_r'}"]
    arguments += ["--times", f"{KITTI / 'times.txt'}", "--poses", f"{KITTI / 'poses_full_06.txt'}"]
    assert main(["images", *arguments, "--pose-format", "kitti", "--out", str(tmp_path / "bag")]) == 0
    bag = BagReader(tmp_path / "bag")
    assert [bag.count(f"/camera/{name}/image/compressed") for name in ("front_wide", "front_tele")] == [51, 51]
    odometry = Odometry([m.message for m in bag.messages(["/odometry"])])
    assert len(odometry.position) == 1101
    assert np.all((odometry.linear[:116, 0] > 10.5) & (odometry.linear[:116, 0] < 12.5))
    assert abs(odometry.angular[:116, 2]).max() < 0.1
    moved = np.linalg.norm(np.diff(odometry.position, axis=0), axis=1) / np.diff(odometry.stamps) * 1e9
    speed = np.linalg.norm(odometry.linear, axis=1)
    assert np.allclose((speed[1:] + speed[:-1]) / 2, moved, atol=0.6)
