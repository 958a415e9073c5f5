"""A frame is found through any number of static transforms, in either direction."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alpamayo_ros.core.static_transforms import StaticTransforms

QUARTER = (0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5))  # to the left, about z


def transform(parent: str, child: str, xyz: tuple[float, ...], quaternion: tuple[float, ...] = (0, 0, 0, 1)) -> Any:
    named = lambda names, values: SimpleNamespace(**dict(zip(names, values, strict=True)))  # noqa: E731
    return SimpleNamespace(
        header=SimpleNamespace(frame_id=parent),
        child_frame_id=child,
        transform=SimpleNamespace(translation=named("xyz", xyz), rotation=named("xyzw", quaternion)),
    )


@pytest.fixture
def tree() -> StaticTransforms:
    found = StaticTransforms()
    found.add(SimpleNamespace(transforms=[transform("roof", "camera", (0.5, 0, 0))]))
    found.add(SimpleNamespace(transforms=[transform("base_link", "roof", (1.0, 0, 1.5), QUARTER)]))
    found.add(SimpleNamespace(transforms=[transform("chassis", "base_link", (0, 0, 0.3))]))
    return found


def test_a_chain_is_put_together(tree: StaticTransforms) -> None:
    camera = tree.find("base_link", "camera")
    assert camera is not None
    assert camera.position == pytest.approx([1.0, 0.5, 1.5])  # half a metre ahead on a roof that looks left
    assert camera.rotation @ [1, 0, 0] == pytest.approx([0, 1, 0])


def test_up_and_down_the_tree(tree: StaticTransforms) -> None:
    there, back = tree.find("chassis", "camera"), tree.find("camera", "chassis")
    assert there is not None
    assert back is not None
    both = there.then(back)
    assert both.position == pytest.approx(np.zeros(3), abs=1e-12)
    assert both.rotation == pytest.approx(np.eye(3))
    itself = tree.find("roof", "roof")
    assert itself is not None
    assert itself.is_identity


def test_unconnected_frames_and_transforms_that_are_none(tree: StaticTransforms) -> None:
    assert tree.find("base_link", "lidar") is None
    tree.add(SimpleNamespace(transforms=[transform("base_link", "lidar", (0, 0, 0), (0, 0, 0, 0))]))
    assert tree.find("base_link", "lidar") is None
