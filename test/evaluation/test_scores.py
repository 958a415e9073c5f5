"""Figures of a tick: right where they are known, None where they aren't."""

from dataclasses import replace

import numpy as np
import pytest
from scenes import observation

from alpamayo_ros.core.rotation import rotations_about_z
from alpamayo_ros.core.select import select
from alpamayo_ros.core.types import HORIZON, Array, Prediction, SamplingOptions
from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.ground_truth import Future
from alpamayo_ros.evaluation.scores import Figures, finite, score

TIMES = np.arange(1, HORIZON + 1) * 0.1
SCENE = observation(speed=10.0)


def prediction(samples: int = 6) -> Prediction:
    """At 10 m/s: sample 0 straight on, the others to the left and right."""
    return NullEngine().predict(SCENE, SamplingOptions(num_samples=samples))


def future(speed: float = 10.0, steps: int = HORIZON, y: float = 0.0) -> Future:
    """Straight ahead."""
    xyz = np.stack([speed * TIMES, np.full(HORIZON, y), np.zeros(HORIZON)], axis=-1)[:steps]
    return Future(xyz, np.broadcast_to(np.eye(3), (steps, 3, 3)))


def figures(made: Prediction, driven: Future, selection: str = "first") -> Figures:
    return score(SCENE, made, select(made, selection), driven)


def test_the_path_that_was_driven_has_no_error() -> None:
    found = figures(prediction(), future())
    assert found["min_ade"]["1"] == pytest.approx(0, abs=1e-9)
    assert found["chosen"]["fde"] == pytest.approx({"1.0": 0, "2.0": 0, "3.0": 0, "5.0": 0, "6.4": 0}, abs=1e-9)
    assert not any(found["chosen"]["miss"].values())
    assert found["baselines"]["constant_velocity"]["ade"]["6.4"] == pytest.approx(0, abs=1e-9)
    assert found["baselines"]["stop"]["fde"]["6.4"] == pytest.approx(64)


def test_best_is_over_all_samples_and_min_ade_over_the_first_k() -> None:
    made = prediction(6)
    turned = replace(made, xyz=np.roll(made.xyz, -1, axis=0))  # a straight one comes last, and none first
    found = figures(turned, future())
    assert found["min_ade"]["1"] > 1
    assert found["min_ade"]["6"] == pytest.approx(0, abs=1e-9)
    assert found["best"]["ade"]["6.4"] == pytest.approx(0, abs=1e-9)
    assert found["chosen"]["ade"]["6.4"] == found["min_ade"]["1"]


def test_min_ade_over_more_samples_than_there_are_is_unknown() -> None:
    assert {k: value is None for k, value in figures(prediction(3), future())["min_ade"].items()} == {
        "1": False,
        "6": True,
        "16": True,
    }


@pytest.mark.parametrize(
    ("steps", "known"),
    [
        (64, {"1.0", "2.0", "3.0", "5.0", "6.4"}),
        (63, {"1.0", "2.0", "3.0", "5.0"}),
        (10, {"1.0"}),
        (9, set()),
        (0, set()),
    ],
)
def test_horizons_beyond_the_recording_are_unknown(steps: int, known: set[str]) -> None:
    found = figures(prediction(), future(steps=steps))
    groups = [
        found["chosen"]["ade"],
        found["chosen"]["fde"],
        found["chosen"]["miss"],
        found["chosen"]["lateral"],
        found["best"]["ade"],
        found["best"]["miss"],
        found["baselines"]["stop"]["ade"],
    ]
    for group in groups:
        assert {name for name, value in group.items() if value is not None} == known
    full = steps == HORIZON
    assert (found["min_ade"]["6"] is not None) == full
    assert (found["best"]["ade_of_full_horizon_best"]["1.0"] is not None) == full


def test_directions_have_signs() -> None:
    chosen = figures(prediction(), future(speed=9.0, y=-1.0))["chosen"]
    assert chosen["longitudinal"]["2.0"] == pytest.approx(2.0)  # ahead of the slower vehicle that was driven
    assert chosen["lateral"]["2.0"] == pytest.approx(1.0)  # to its left
    assert chosen["heading"]["2.0"] == pytest.approx(0.0)


def test_a_miss_is_judged_by_speed_too() -> None:
    # 0.9 m/s too fast is 2.7 m ahead after 3 s: missed at any speed; 0.9 m to the side after 3 s: at walking pace alone
    assert figures(prediction(), future(speed=9.1))["chosen"]["miss_waymo"] == {
        "1.0": None,
        "2.0": None,
        "3.0": True,
        "5.0": True,
        "6.4": True,
    }
    assert figures(prediction(), future(y=0.9))["chosen"]["miss_waymo"]["3.0"] is False
    slow = observation(speed=1.0)
    made = NullEngine().predict(slow, SamplingOptions(num_samples=1))
    beside = score(slow, made, select(made), future(speed=1.0, y=0.9))
    assert beside["chosen"]["miss_waymo"]["3.0"] is True


def test_progress_is_the_way_made_beside_the_way_driven() -> None:
    chosen = figures(prediction(), future(speed=8.0))["chosen"]
    assert chosen["progress"]["difference"]["5.0"] == pytest.approx(10.0)
    assert chosen["progress"]["share"]["5.0"] == pytest.approx(1.25)
    assert figures(prediction(), future(speed=0.1))["chosen"]["progress"]["share"]["6.4"] is None


def test_the_first_point_is_where_a_controller_starts() -> None:
    assert figures(prediction(), future(speed=8.0))["chosen"]["first_point"] == pytest.approx(0.2)
    assert figures(prediction(), future(steps=0))["chosen"]["first_point"] is None


def test_beside_the_choice_stands_what_chance_would_do() -> None:
    made = prediction(6)
    at_random = figures(made, future())["agreement"]["at_random"]
    found = [figures(replace(made, xyz=np.roll(made.xyz, -k, axis=0)), future())["agreement"] for k in range(6)]
    for name in ("chose_best", "worse_by"):
        assert at_random[name] == pytest.approx(np.mean([each[name] for each in found]))
    assert 0 < at_random["chose_best"] < 1


def test_baselines_have_their_comfort() -> None:
    baselines = figures(prediction(), future())["baselines"]
    straight_on = baselines["constant_velocity"]
    assert straight_on["comfort"] == pytest.approx(dict.fromkeys(straight_on["comfort"], 0.0), abs=1e-9)
    assert straight_on["within_bounds"]["all"] is True
    standing = baselines["stop"]  # from 10 m/s, at once
    assert standing["comfort"]["min_acceleration"] < -20
    assert standing["within_bounds"]["all"] is False


def test_a_baseline_that_turns_pulls_sideways() -> None:
    angle = 0.3 * np.arange(-15, 1) * 0.1  # rad, at 0.3 rad/s
    circle = np.stack([np.sin(angle), 1 - np.cos(angle), 0 * angle], axis=-1) * 10.0 / 0.3
    turning = replace(SCENE, history_xyz=circle, history_rotation=rotations_about_z(angle))
    made = NullEngine().predict(turning, SamplingOptions(num_samples=1))
    comfort = score(turning, made, select(made), future())["baselines"]["constant_turn_rate_and_acceleration"][
        "comfort"
    ]
    assert comfort["lateral_acceleration"] == pytest.approx(3.0, rel=0.02)
    assert comfort["yaw_rate"] == pytest.approx(0.3, rel=0.02)


def test_agreement_says_whether_the_best_sample_was_chosen_and_what_it_cost() -> None:
    made = prediction(6)
    agreement = figures(made, future())["agreement"]
    assert (agreement["chose_best"], agreement["worse_by"]) == (True, 0.0)
    turned = replace(made, xyz=np.roll(made.xyz, -1, axis=0))
    found = figures(turned, future())
    assert found["agreement"]["chose_best"] is False
    assert found["agreement"]["worse_by"] == pytest.approx(found["chosen"]["ade"]["6.4"])
    for unknown in (figures(prediction(1), future()), figures(made, future(steps=20))):
        assert (unknown["agreement"]["chose_best"], unknown["agreement"]["worse_by"]) == (None, None)
    assert figures(made, future(), "mean")["agreement"]["chose_best"] is None


class TestFinite:
    @pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float32("-inf")])
    def test_what_json_can_not_hold_becomes_none(self, value: float) -> None:
        assert finite({"a": [value, 1.0]}) == {"a": [None, 1.0]}

    def test_arrays_and_numpy_numbers_become_plain(self) -> None:
        values: Array = np.array([1.0, 2.0])
        assert finite({"a": values, "b": np.int64(3), "c": (np.bool_(True),)}) == {"a": [1.0, 2.0], "b": 3, "c": [True]}
