"""A frame is found through any number of static transforms, up and down a tree like tf2's."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from alpamayo_ros.core.transform_tree import TransformTree

QUARTER = (0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5))  # to the left, about z


def transform(parent: str, child: str, xyz: tuple[float, ...], quaternion: tuple[float, ...] = (0, 0, 0, 1)) -> Any:
    named = lambda names, values: SimpleNamespace(**dict(zip(names, values, strict=True)))  # noqa: E731
    return SimpleNamespace(
        header=SimpleNamespace(frame_id=parent),
        child_frame_id=child,
        transform=SimpleNamespace(translation=named("xyz", xyz), rotation=named("xyzw", quaternion)),
    )


@pytest.fixture
def tree() -> TransformTree:
    found = TransformTree()
    found.add_static([transform("roof", "camera", (0.5, 0, 0))])
    found.add_static([transform("base_link", "roof", (1.0, 0, 1.5), QUARTER)])
    found.add_static([transform("chassis", "base_link", (0, 0, 0.3))])
    return found


def test_a_chain_is_put_together(tree: TransformTree) -> None:
    camera = tree.find("base_link", "camera")
    assert camera is not None
    assert camera.position == pytest.approx([1.0, 0.5, 1.5])  # half a metre ahead on a roof that looks left
    assert camera.rotation @ [1, 0, 0] == pytest.approx([0, 1, 0])


def test_up_and_down_the_tree(tree: TransformTree) -> None:
    there, back = tree.find("chassis", "camera"), tree.find("camera", "chassis")
    assert there is not None
    assert back is not None
    both = there.then(back)
    assert both.position == pytest.approx(np.zeros(3), abs=1e-12)
    assert both.rotation == pytest.approx(np.eye(3))
    itself = tree.find("roof", "roof")
    assert itself is not None
    assert itself.is_identity


def test_unconnected_frames_and_transforms_that_are_none(tree: TransformTree) -> None:
    assert tree.find("base_link", "lidar") is None
    tree.add_static([transform("base_link", "lidar", (0, 0, 0), (0, 0, 0, 0))])
    assert tree.find("base_link", "lidar") is None


def test_a_frame_has_the_parent_that_was_named_last(tree: TransformTree) -> None:
    tree.add_static([transform("mast", "camera", (0, 0, 4.0))])
    assert tree.find("roof", "camera") is None
    moved = tree.find("mast", "camera")
    assert moved is not None
    assert moved.position == pytest.approx([0, 0, 4.0])
    tree.add_static([transform("roof", "camera", (0.6, 0, 0))])
    back = tree.find("roof", "camera")
    assert back is not None
    assert back.position == pytest.approx([0.6, 0, 0])


def test_frames_beside_each_other_are_found_by_what_both_are_in(tree: TransformTree) -> None:
    tree.add_static([transform("base_link", "gps", (-1.0, 0, 0.5))])
    camera = tree.find("gps", "camera")
    assert camera is not None
    assert camera.position == pytest.approx([2.0, 0.5, 1.0])


def test_one_that_moves_leads_nowhere_until_it_is_static_again(tree: TransformTree) -> None:
    tree.add_moving(("base_link", "roof"))
    assert tree.find("chassis", "camera") is None
    assert tree.find("roof", "camera") is not None
    tree.add_static([transform("base_link", "roof", (1.0, 0, 1.5))])
    assert tree.find("chassis", "camera") is not None


def test_frames_that_go_round_in_circles_lead_nowhere() -> None:
    tree = TransformTree()
    tree.add_static([transform("a", "b", (1, 0, 0)), transform("b", "c", (1, 0, 0)), transform("c", "a", (1, 0, 0))])
    assert tree.find("a", "d") is None
    assert tree.find("d", "a") is None
    assert tree.find("a", "c") is not None
