"""The junction score asks for every way out in the world's own words, and sees which one is taken."""

from dataclasses import replace

import numpy as np
import pytest

from alpamayo_ros.core.rotation import rotations_about_z
from alpamayo_ros.core.types import Prediction
from alpamayo_ros.sim.driver import CRUISE
from alpamayo_ros.sim.recorded_drive import record_drive
from alpamayo_ros.sim.world import World
from alpamayo_ros.tools.mini_branches import BranchCase, branch_cases, taken

SEED, SECONDS = 3, 14.0


@pytest.fixture(scope="module")
def cases() -> list[BranchCase]:
    drive = record_drive(SEED, SECONDS, image_size=(16, 32))
    return branch_cases(World.random(SEED, SECONDS * CRUISE), drive)


def ending_at(end: np.ndarray) -> Prediction:
    rotation = rotations_about_z(np.zeros(64))[None]
    xyz = np.zeros((1, 64, 3))
    xyz[0, -1, :2] = end
    return Prediction(xyz, rotation, np.zeros((1, 64, 2)), np.zeros((1, 65)), ("",), ((),), ("stop",), 0)


def test_every_way_out_is_asked_for(cases: list[BranchCase]) -> None:
    assert cases
    exits = cases[0].ways
    assert {case.asked for case in cases[: len(exits)]} == set(exits)
    texts = {case.asked: case.observation.navigation for case in cases[: len(exits)]}
    assert len(set(texts.values())) == len(texts)


def test_the_routes_own_way_out_is_asked_for_as_the_world_does(cases: list[BranchCase]) -> None:
    drive = record_drive(SEED, SECONDS, image_size=(16, 32))
    t0 = cases[0].observation.t0_ns
    said = drive.navigation[t0 // 100_000_000]
    assert said in {case.observation.navigation for case in cases if case.observation.t0_ns == t0}


def test_the_way_out_is_told_by_where_the_path_ends(cases: list[BranchCase]) -> None:
    for case in cases:
        for turn, way in case.ways.items():
            for place in (len(way) - 1, len(way) // 4):  # far beyond the junction, and within it
                assert taken(ending_at(way[place] + [0.2, -0.2]), case) is turn
            assert taken(ending_at(way[0]), case) is None  # there is nothing to tell them by yet
        asked_otherwise = replace(case, ways={case.asked: case.ways[case.asked]})
        assert taken(ending_at(case.ways[case.asked][-1] + 30.0), asked_otherwise) is case.asked  # there is no other


def test_the_drivers_own_plan_takes_the_routes_way_out(cases: list[BranchCase]) -> None:
    drive = record_drive(SEED, SECONDS, image_size=(16, 32))
    case = cases[0]
    index = case.observation.t0_ns // 100_000_000
    its = next(each for each in cases if each.observation.navigation == drive.navigation[index])
    assert taken(ending_at(drive.futures[index, -1, :2]), case) is its.asked
