"""The synthetic drive is what a recording would be: poses, twist and pictures agree with each other."""

import numpy as np
import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.drive import SyntheticDrive, synthetic_drive


@pytest.fixture(scope="module", params=[0, 1, 2])
def drive(request: pytest.FixtureRequest) -> SyntheticDrive:
    return synthetic_drive(20, request.param)


def test_begins_at_the_origin_along_x(drive: SyntheticDrive) -> None:
    assert np.allclose(drive.track.position[0], 0, atol=1e-9)
    assert np.allclose(drive.track.rotation[0], np.eye(3))


def test_50_poses_and_10_images_a_second(drive: SyntheticDrive) -> None:
    assert set(np.diff(drive.track.stamps_ns)) == {20_000_000}
    assert set(np.diff(drive.image_stamps_ns)) == {100_000_000}
    assert len(drive.image_stamps_ns) == 201


def test_the_twist_is_how_the_poses_change(drive: SyntheticDrive) -> None:
    track = drive.track
    velocity = np.gradient(track.position, 0.02, axis=0)
    in_body = np.einsum("nji,nj->ni", track.rotation, velocity)
    assert np.allclose(in_body[1:-1], track.linear[1:-1], atol=0.03)
    yaw = np.unwrap(np.arctan2(track.rotation[:, 1, 0], track.rotation[:, 0, 0]))
    assert np.allclose(np.gradient(yaw, 0.02)[1:-1], track.angular[1:-1, 2], atol=0.05)


def test_it_gets_on_along_the_route(drive: SyntheticDrive) -> None:
    assert np.all(np.diff(drive.along) >= 0)
    assert drive.along[-1] > 60


def test_the_same_seed_gives_the_same_drive() -> None:
    first, second, other = (list(synthetic_drive(0.2, seed).images()) for seed in (5, 5, 6))
    assert [(stamp, camera) for stamp, camera, _ in first] == [(stamp, camera) for stamp, camera, _ in second]
    assert all(np.array_equal(a[2], b[2]) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a[2], b[2]) for a, b in zip(first, other, strict=True))


def test_other_sizes() -> None:
    pictures = list(synthetic_drive(0.1, 0, width=64, height=48).images())
    assert {picture.shape for _, _, picture in pictures} == {(48, 64, 3)}
    assert len(pictures) == 8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0, 0), "a drive of 0.0 s, expected more than 0"),
        ((float("nan"), 0), "a drive of nan s"),
        ((1.0, -1), "a world of seed -1, expected at least 0"),
    ],
)
def test_an_impossible_drive_is_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        synthetic_drive(*arguments)
