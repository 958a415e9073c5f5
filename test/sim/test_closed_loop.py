"""The closed loop proves itself: the expert drives its routes by it, what needs no model doesn't, and errors show."""

import numpy as np
import pytest

from alpamayo_ros.core.types import Array, SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.sim.closed_loop import Observer, drive_closed_loop
from alpamayo_ros.sim.journey import Journey
from alpamayo_ros.sim.policies import BASELINES, Moment, Policy, engine_policy, expert
from alpamayo_ros.sim.renderer import Renderer
from alpamayo_ros.sim.rig import rig
from alpamayo_ros.sim.scoring import ClosedLoopScore, score
from alpamayo_ros.sim.world import World

FIRST_SEED = 1000


def scores(policy: Policy, routes: int, length: float = 500.0) -> list[ClosedLoopScore]:
    worlds = [World.random(FIRST_SEED + number, length) for number in range(routes)]
    return [score(world, drive_closed_loop(world, policy)) for world in worlds]


def test_the_expert_passes_every_route() -> None:
    results = scores(expert, 4)
    assert all(each.passed for each in results)
    assert max(each.max_offset_m for each in results) < 0.5


@pytest.mark.parametrize("name", BASELINES)
def test_what_needs_no_model_fails(name: str) -> None:
    results = scores(BASELINES[name], 5)
    assert not any(each.passed for each in results)
    assert np.mean([each.distance_m for each in results]) < 150


def mirrored(moment: Moment) -> Array:
    return expert(moment) * [1.0, -1.0, 1.0]


@pytest.mark.parametrize("wrong", [mirrored], ids=["mirrored"])
def test_a_wrong_sign_fails(wrong: Policy) -> None:
    assert not any(each.passed for each in scores(wrong, 4))


def test_no_two_drives_share_a_frames_serial() -> None:
    """An engine keeps what it made of a frame by its serial, and would take one drive's pictures for another's."""
    world = World.random(2, 120.0)
    renderer, journey = Renderer(world, rig(40, 24)), Journey(world)
    first, second = (
        [observer.look(journey) for _ in range(17)][-1] for observer in (Observer(renderer), Observer(renderer))
    )
    assert first is not None
    assert second is not None
    serials = [{f.serial for frames in each.frames.values() for f in frames} for each in (first, second)]
    assert len(serials[0]) == len(serials[1]) == 16
    assert not serials[0] & serials[1]


def test_the_observation_has_frames_history_and_navigation() -> None:
    world = World.random(2, 120.0)
    seen: list[Moment] = []

    def watching(moment: Moment) -> Array:
        seen.append(moment)
        return expert(moment)

    drive_closed_loop(world, watching, renderer=Renderer(world, rig(40, 24)))
    first, last = seen[0].observation, seen[-1].observation
    assert list(first.frames) == [0, 1, 2, 6]
    for observation in (first, last):
        for frames in observation.frames.values():
            stamps = [frame.stamp_ns for frame in frames]
            assert stamps == [observation.t0_ns - k * 100_000_000 for k in (3, 2, 1, 0)]
        assert np.allclose(observation.history_xyz[-1], 0)
        assert np.allclose(observation.history_rotation[-1], np.eye(3))
        assert observation.history_xyz[0, 0] < -1.0  # it came from behind
    serials = [
        frame.serial for moment in seen[::4] for frames in moment.observation.frames.values() for frame in frames
    ]
    assert len(set(serials)) == len(serials)
    assert any(moment.observation.navigation for moment in seen)


def test_an_engine_can_be_asked() -> None:
    world = World.random(2, 100.0)
    trace = drive_closed_loop(world, engine_policy(NullEngine(), SamplingOptions()))
    assert trace.along[-1] > 30
