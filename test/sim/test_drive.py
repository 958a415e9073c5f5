"""The synthetic drive is geometrically right: poses, twist, road and pictures agree with each other."""

import itertools

import numpy as np
import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.drive import SyntheticDrive, synthetic_drive
from alpamayo_ros.sim.road import Road
from alpamayo_ros.sim.scene import LANE_WIDTH, MARKING_WIDTH, Scene, to_ego

SEEDS = [0, 1, 2]


@pytest.fixture(scope="module", params=SEEDS)
def drive(request: pytest.FixtureRequest) -> SyntheticDrive:
    return synthetic_drive(20, request.param)


def pose_number(drive: SyntheticDrive, bend: str) -> int:
    """A pose with an image, on a straight or where the road bends most."""
    curvature = np.abs(drive.track.angular[:, 2] / drive.track.linear[:, 0])[: 15 * 50 : 5]
    return 5 * int(np.argmin(curvature) if bend == "straight" else np.argmax(curvature))


class TestMotion:
    def test_begins_at_the_origin_along_x(self, drive: SyntheticDrive) -> None:
        assert np.allclose(drive.track.position[0], 0)
        assert np.allclose(drive.track.rotation[0], np.eye(3))

    def test_50_poses_and_10_images_a_second(self, drive: SyntheticDrive) -> None:
        assert set(np.diff(drive.track.stamps_ns)) == {20_000_000}
        assert set(np.diff(drive.image_stamps_ns)) == {100_000_000}
        assert len(drive.image_stamps_ns) == 201

    def test_the_twist_is_how_the_poses_change(self, drive: SyntheticDrive) -> None:
        track = drive.track
        velocity = np.gradient(track.position, 0.02, axis=0)
        in_body = np.einsum("nji,nj->ni", track.rotation, velocity)
        assert np.allclose(in_body[1:-1], track.linear[1:-1], atol=0.02)
        yaw = np.unwrap(np.arctan2(track.rotation[:, 1, 0], track.rotation[:, 0, 0]))
        assert np.allclose(np.gradient(yaw, 0.02)[1:-1], track.angular[1:-1, 2], atol=0.01)

    def test_the_curvature_of_the_path_is_yaw_rate_by_speed(self, drive: SyntheticDrive) -> None:
        x, y = drive.track.position[:, 0], drive.track.position[:, 1]
        dx, dy = np.gradient(x, 0.02), np.gradient(y, 0.02)
        curvature = (dx * np.gradient(dy, 0.02) - dy * np.gradient(dx, 0.02)) / np.hypot(dx, dy) ** 3
        wanted = drive.track.angular[:, 2] / drive.track.linear[:, 0]
        assert np.abs(wanted).max() > 1 / 130
        assert np.allclose(curvature[3:-3], wanted[3:-3], atol=2e-3)

    def test_stays_in_the_middle_of_the_right_lane(self, drive: SyntheticDrive) -> None:
        for position in drive.track.position[::50, :2]:
            nearest = np.linalg.norm(drive.road.xy - position, axis=1).min()
            assert nearest == pytest.approx(LANE_WIDTH / 2, abs=0.01)

    def test_keeps_to_the_limits_of_a_careful_driver(self, drive: SyntheticDrive) -> None:
        speed = drive.track.linear[:, 0]
        acceleration = np.diff(speed) / 0.02
        assert np.all((speed >= 3) & (speed <= 13))
        assert np.all((acceleration > -1.9) & (acceleration < 1.3))
        assert np.abs(speed * drive.track.angular[:, 2]).max() < 2.1


class TestRoad:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_curvature_is_continuous_and_heading_its_integral(self, seed: int) -> None:
        road = Road.random(500, seed)
        step = np.diff(road.distance)
        assert np.allclose(np.linalg.norm(np.diff(road.xy, axis=0), axis=1), step)
        assert np.abs(np.diff(road.curvature)).max() < 1e-3
        middle = (road.curvature[1:] + road.curvature[:-1]) / 2
        assert np.allclose(np.diff(road.heading), middle * step)
        assert road.distance[-1] >= 499

    def test_positive_curvature_bends_to_the_left(self) -> None:
        road = next(r for r in (Road.random(300, seed) for seed in itertools.count()) if r.curvature[1200] > 0.005)
        ahead = to_ego(road.points(130.0), road.points(100.0), float(road.heading_at(100.0)))
        assert ahead[1] > 0


class TestPictures:
    @pytest.mark.parametrize(
        ("camera", "bend", "reach"),
        [("front_wide", "straight", (4, 12)), ("front_wide", "curve", (4, 12)), ("front_tele", "straight", (18, 40))],
    )
    @pytest.mark.parametrize("line", [-LANE_WIDTH, LANE_WIDTH])
    def test_edge_lines_are_where_the_camera_model_puts_them(
        self, drive: SyntheticDrive, camera: str, bend: str, reach: tuple[float, float], line: float
    ) -> None:
        number = pose_number(drive, bend)
        model, along = drive.cameras[camera], drive.along[number]
        yaw = float(drive.road.heading_at(along))
        position = drive.track.position[number, :2]
        picture = Scene(drive.road, drive.cameras, drive.seed).draw(camera, position, yaw, along)

        def brightness(left: float) -> np.ndarray:
            """Along a parallel of the center line, where it is in the picture and a line is wider than a pixel."""
            points = to_ego(drive.road.points(along + np.arange(*reach, 0.37), left), position, yaw)
            pixels, seen = model.project(np.column_stack([points, np.zeros(len(points))]))
            x, y = np.round(pixels[seen]).astype(int).T
            return picture[y, x].mean(axis=-1)

        on_line, beside = brightness(line), brightness(line - np.sign(line) * 4 * MARKING_WIDTH)
        assert min(len(on_line), len(beside)) >= 5
        assert on_line.mean() > 190
        assert beside.mean() < 110

    def test_the_horizon_is_in_the_middle(self, drive: SyntheticDrive) -> None:
        picture = Scene(drive.road, drive.cameras, 0).draw("cross_left", np.zeros(2), 0.0, 0.0)
        blue, green = picture[..., 2].astype(int), picture[..., 1].astype(int)
        assert np.all(blue[:85] > green[:85])
        assert np.all(blue[100:] < green[100:] + 10)

    def test_the_cameras_look_to_their_sides(self, drive: SyntheticDrive) -> None:
        """The vehicle drives on the right: less asphalt on that side."""
        scene = Scene(drive.road, drive.cameras, 0)
        left, right = (scene.draw(c, np.zeros(2), 0.0, 30.0) for c in ("cross_left", "cross_right"))
        gray = [(np.ptp(picture[95:].astype(int), axis=-1) < 8).mean() for picture in (left, right)]
        assert gray[0] > gray[1] + 0.2

    def test_the_ground_moves_with_the_world(self, drive: SyntheticDrive) -> None:
        scene = Scene(drive.road, drive.cameras, 0)
        here, ahead = (scene.draw("front_wide", np.array([x, 0.0]), 0.0, 30.0 + x) for x in (0.0, 1.0))
        assert np.abs(here.astype(int) - ahead)[95:].mean() > 2

    def test_the_same_seed_gives_the_same_drive(self) -> None:
        first, second, other = (list(synthetic_drive(0.2, seed).images()) for seed in (5, 5, 6))
        assert [(stamp, camera) for stamp, camera, _ in first] == [(stamp, camera) for stamp, camera, _ in second]
        assert all(np.array_equal(a[2], b[2]) for a, b in zip(first, second, strict=True))
        assert not all(np.array_equal(a[2], b[2]) for a, b in zip(first, other, strict=True))

    def test_other_sizes(self) -> None:
        pictures = list(synthetic_drive(0.1, 0, width=64, height=48).images())
        assert {picture.shape for _, _, picture in pictures} == {(48, 64, 3)}
        assert len(pictures) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0.0, 0), "a drive of 0.0 s, expected more than 0"), ((float("nan"), 0), "a drive of nan s")],
)
def test_an_impossible_drive_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        synthetic_drive(*arguments)
