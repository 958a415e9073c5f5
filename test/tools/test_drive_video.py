"""Videos of closed loops: a picture for every second answer, and paths where the vehicle is."""

from pathlib import Path

import cv2
import numpy as np
import pytest

pytest.importorskip("rclpy", reason="needs rclpy: make setup, or source a ROS 2 installation")

from alpamayo_ros.core.types import AlpamayoError
from alpamayo_ros.evaluation.drive_bag import BASE_LINK
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.vehicle import VehicleState
from alpamayo_ros.sim.world import World
from alpamayo_ros.tools import drive_video
from alpamayo_ros.tools.drive_node import Answer, DriveNode
from alpamayo_ros.tools.drive_video import DriveVideo, path_in_ego

WORLD = World.random(2, 120.0)


def test_every_second_answer_gets_a_picture(tmp_path: Path, ros_domain: int, capfd: pytest.CaptureFixture[str]) -> None:
    path, journey = tmp_path / "drive.webm", Journey(WORLD)
    renderer = Renderer(WORLD, rig(32, 24))
    with DriveNode([]) as node, DriveVideo(path, WORLD, renderer, node) as video:
        for tick in range(6):
            video(journey, Answer(tick, "odom", journey.plan()[:, :2]))
    reader, shapes = cv2.VideoCapture(str(path)), []
    while (read := reader.read())[0]:
        shapes.append(read[1].shape)
    assert shapes == [(578, 640, 3)] * 3
    assert capfd.readouterr().err == ""


def test_the_words_of_the_last_tick_are_waited_for(
    tmp_path: Path, ros_domain: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(DriveNode):
        said = ""

        def spin(self, seconds: float) -> None:
            self.said = "Keep the speed."

        def reasoning_at(self, t0_ns: int) -> str:
            return self.said

    written = list[str]()
    monkeypatch.setattr(drive_video, "write_below", lambda picture, text: (written.append(text), picture)[1])
    journey = Journey(WORLD)
    with Slow([]) as node, DriveVideo(tmp_path / "drive.webm", WORLD, Renderer(WORLD, rig(32, 24)), node) as video:
        for tick in range(2):
            video(journey, Answer(tick, "odom", journey.plan()[:, :2]))
    assert written[-1] == 'The model: "Keep the speed."'


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, ros_domain: int) -> None:
    with DriveNode([]) as node, pytest.raises(AlpamayoError, match="nowhere"):
        DriveVideo(tmp_path / "nowhere" / "drive.webm", WORLD, Renderer(WORLD, rig(32, 24)), node)


def test_paths_are_drawn_from_where_the_vehicle_is() -> None:
    vehicle = VehicleState(10.0, 5.0, np.pi / 2, 8.0, 0.0, 0.0)
    ahead = np.array([[10.0, 7.0], [9.0, 8.0]])  # 2 m ahead; then 3 m ahead and 1 m to the left
    expected = [[2.0, 0.0, 0.0], [3.0, 1.0, 0.0]]
    assert np.allclose(path_in_ego(Answer(0, "odom", ahead), vehicle), expected)
    assert np.allclose(path_in_ego(Answer(0, BASE_LINK, np.array(expected)[:, :2]), vehicle), expected)
