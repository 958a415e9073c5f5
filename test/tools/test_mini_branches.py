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


def heading_to(angle: float) -> Prediction:
    rotation = rotations_about_z(np.linspace(0.0, angle, 64))[None]
    nothing = np.zeros((1, 64, 3))
    return Prediction(nothing, rotation, nothing[..., :2], np.zeros((1, 65)), ("",), ((),), ("stop",), 0)


def test_every_way_out_is_asked_for(cases: list[BranchCase]) -> None:
    assert cases
    exits = cases[0].exits
    assert {case.asked for case in cases[: len(exits)]} == set(exits)
    texts = {case.asked: case.observation.navigation for case in cases[: len(exits)]}
    assert len(set(texts.values())) == len(texts)


def test_the_routes_own_way_out_is_asked_for_as_the_world_does(cases: list[BranchCase]) -> None:
    drive = record_drive(SEED, SECONDS, image_size=(16, 32))
    t0 = cases[0].observation.t0_ns
    said = drive.navigation[t0 // 100_000_000]
    assert said in {case.observation.navigation for case in cases if case.observation.t0_ns == t0}


def test_the_way_out_is_told_by_the_last_heading(cases: list[BranchCase]) -> None:
    for case in cases:
        for turn, angle in case.exits.items():
            assert taken(heading_to(angle * 0.9), case) is turn
        asked_otherwise = replace(case, exits={case.asked: case.exits[case.asked]})
        assert taken(heading_to(3.0), asked_otherwise) is case.asked  # there is no other
