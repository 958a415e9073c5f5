"""A drive past a lamp: recordings show it where their own formulas put it, and the bag must put it there too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from alpamayo_ros.core.incoming import pose_from_message, stamp_ns
from alpamayo_ros.core.mounting import Mounting
from alpamayo_ros.core.rotation import matrix_from_quaternion, matrix_from_rpy
from alpamayo_ros.core.transform_tree import TransformTree
from alpamayo_ros.core.types import Array
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.drive_bag import camera_info_topic, image_topic
from alpamayo_ros.sensors.calibration import camera_from_info
from alpamayo_ros.sensors.camera_model import OPTICAL_IN_CAMERA, CameraModel

SPEED, YAW_RATE = 8.0, 0.3  # m/s, rad/s: to the left
LAMP = np.array([40.0, 12.0, 1.0])  # m, seen from where base_link is at time 0
SIZE = (320, 240)
FOCAL, CENTER = 150.0, (158.0, 121.0)

Image = NDArray[np.uint8]
Pixel = tuple[float, float]


def matrix(rotation: Array, position: Array | tuple[float, ...] = (0.0, 0.0, 0.0)) -> Array:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, position
    return pose


def base_pose(t: float) -> Array:
    """[4, 4] of base_link at a time in s, on a circle to the left that begins at the origin along x."""
    angle, radius = YAW_RATE * t, SPEED / YAW_RATE
    return matrix(matrix_from_rpy(0, 0, angle), (radius * np.sin(angle), radius * (1 - np.cos(angle)), 0.0))


def optical_in_base(x: float, y: float, z: float, pitch: float = 0.0, yaw: float = 0.0) -> Array:
    """[4, 4] of a camera's optical frame."""
    return matrix(matrix_from_rpy(0, pitch, yaw) @ OPTICAL_IN_CAMERA, (x, y, z))


def seen(pose: Array, point: Array) -> Array:
    """A point [3] in the frame that has this pose [4, 4]."""
    return np.array((np.linalg.inv(pose) @ [*point, 1.0])[:3])


def pinhole(point: Array, focal: float = FOCAL, center: Pixel = CENTER) -> Pixel:
    """The pixel of a point in an optical frame."""
    x, y, z = point
    return focal * x / z + center[0], focal * y / z + center[1]


def picture(pixel: Pixel, size: tuple[int, int] = SIZE) -> Image:
    """Black with a lamp, its middle there to 1/16 pixel."""
    image = np.zeros((size[1], size[0], 3), np.uint8)
    center = (round(pixel[0] * 16), round(pixel[1] * 16))
    cv2.circle(image, center, 5 * 16, (255, 255, 255), -1, cv2.LINE_AA, shift=4)
    return image


def video(path: Path, pixels: list[Pixel], rate: float) -> Path:
    """A video that shows the lamp at these pixels, frame by frame."""
    made = path.with_name(f"{path.name}.mp4")
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = cv2.VideoWriter(str(made), cv2.VideoWriter_fourcc(*"mp4v"), rate, SIZE)  # type: ignore[attr-defined]
    for pixel in pixels:
        writer.write(picture(pixel))
    writer.release()
    return made.rename(path)


@dataclass(frozen=True, eq=False)
class Odometry:
    """/odometry of a bag."""

    stamps: NDArray[np.int64]
    position: Array
    rotation: Array
    linear: Array
    angular: Array

    def pose_at(self, stamp: int) -> Array:
        """[4, 4], between the two nearest poses."""
        position = np.array([np.interp(stamp, self.stamps, self.position[:, axis]) for axis in range(3)])
        yaws = np.unwrap(np.arctan2(self.rotation[:, 1, 0], self.rotation[:, 0, 0]))
        near = int(np.abs(self.stamps - stamp).argmin())
        turn = np.interp(stamp, self.stamps, yaws) - yaws[near]
        return matrix(matrix_from_rpy(0, 0, turn) @ self.rotation[near], position)


class SeenBag:
    """A bag as its users see it: CameraInfo, tf_static and odometry."""

    def __init__(self, path: Path) -> None:
        self.reader = BagReader(path)

    def odometry(self) -> Odometry:
        messages = [message.message for message in self.reader.messages(["/odometry"])]
        assert {(each.header.frame_id, each.child_frame_id) for each in messages} == {("odom", "base_link")}
        poses = [pose_from_message(message) for message in messages]
        return Odometry(
            np.array([pose.stamp_ns for pose in poses]),
            np.array([pose.position for pose in poses]),
            matrix_from_quaternion(np.array([pose.orientation for pose in poses])),
            np.array([pose.linear_velocity for pose in poses]),
            np.array([pose.angular_velocity for pose in poses]),
        )

    def images(self, camera: str) -> dict[int, Image]:
        """Pictures by their stamps."""
        found = {}
        for message in self.reader.messages([image_topic(camera)]):
            assert message.message.header.frame_id == f"{camera}_optical_frame"
            found[stamp_ns(message.message.header.stamp)] = cv2.imdecode(message.message.data, cv2.IMREAD_COLOR)
        return found

    def camera(self, camera: str) -> CameraModel:
        """From CameraInfo and tf_static. There is a CameraInfo for every image."""
        infos = [message.message for message in self.reader.messages([camera_info_topic(camera)])]
        assert [stamp_ns(info.header.stamp) for info in infos] == list(self.images(camera))
        transforms = TransformTree()
        for message in self.reader.messages(["/tf_static"]):
            transforms.add_static(message.message.transforms)
        optical = transforms.find("base_link", infos[0].header.frame_id)
        assert optical is not None
        return camera_from_info(infos[0], Mounting(optical.position, optical.rotation @ OPTICAL_IN_CAMERA.T))

    def lamp_errors(self, camera: str, lamp: Array) -> list[float]:
        """For each image: pixels between the lamp in it and where the bag's frames and calibration put it.

        Args:
            camera: its name.
            lamp: [3] m in odom.
        """
        model, odometry = self.camera(camera), self.odometry()
        errors = []
        for stamp, image in self.images(camera).items():
            assert image.shape[:2] == (model.height, model.width)
            pixels, visible = model.project(seen(odometry.pose_at(stamp), lamp))
            assert visible
            errors.append(float(np.linalg.norm(pixels - brightest(image))))
        return errors

    def check_left_turn(self) -> None:
        """It moves as `base_pose` says, and the twist is that of base_link."""
        odometry = self.odometry()
        inner = slice(2, -2)  # at the ends differences reach to one side only
        assert np.allclose(odometry.linear[inner], [SPEED, 0, 0], atol=0.05)
        assert np.allclose(odometry.angular[inner], [0, 0, YAW_RATE], atol=0.01)


def brightest(image: Image) -> Array:
    """The middle [2] of what is bright, in pixels (x right, y down)."""
    weights = np.clip(image.max(axis=-1).astype(float) - 64, 0, None)
    rows, columns = np.indices(weights.shape)
    return np.array([(weights * columns).sum(), (weights * rows).sum()]) / weights.sum()


def times(seconds: float, rate: float, begin: float = 0.0) -> list[float]:
    return [begin + number / rate for number in range(round(seconds * rate) + 1)]


def make(tool: Callable[[list[str]], int], *arguments: str | Path) -> int:
    """Run a command line, as a user would."""
    return tool([str(argument) for argument in arguments])
