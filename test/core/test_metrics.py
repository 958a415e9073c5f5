"""Errors mean what their definitions say, and agree with what NVIDIA's own code recorded."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alpamayo_ros.core import metrics
from alpamayo_ros.core.types import HORIZON, Array

GOLDEN = Path(__file__).parents[2].parent / "shared" / "golden" / "metrics.npz"
TIMES = np.arange(1, HORIZON + 1) * 0.1
ROUNDING = 5e-7  # m; the recorded figures are in float32


def straight(speed: float, y: float = 0.0) -> Array:
    return np.stack([speed * TIMES, np.full(HORIZON, y), np.zeros(HORIZON)], axis=-1)


def moved(xyz: Array, x: float, y: float, z: float) -> Array:
    return xyz + np.array([x, y, z])


def headings(yaw: float | Array) -> Array:
    cos, sin = np.broadcast_arrays(np.cos(yaw), np.sin(yaw))
    zero, one = np.zeros_like(cos), np.ones_like(cos)
    flat = np.stack([cos, -sin, zero, sin, cos, zero, zero, zero, one], axis=-1)
    return np.broadcast_to(flat.reshape(*cos.shape, 3, 3), (HORIZON, 3, 3))


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Array]:
    if not GOLDEN.is_file():
        pytest.skip(f"{GOLDEN} is not here")
    with np.load(GOLDEN, allow_pickle=False) as file:
        return {name: file[name].astype(float) for name in file}


@pytest.fixture(scope="module")
def recorded(golden: Mapping[str, Array]) -> Array:
    return metrics.distances(golden["pred_xyz"], golden["gt_xyz"][:, None])


class TestAgainstNvidia:
    def test_the_example_script(self, golden: Mapping[str, Array], recorded: Array) -> None:
        assert metrics.ade(recorded, HORIZON) == pytest.approx(golden["ade_per_sample"], abs=ROUNDING)
        assert metrics.min_ade(recorded, HORIZON) == pytest.approx(golden["min_ade"], abs=ROUNDING)
        assert metrics.ade(recorded, HORIZON).mean(axis=-1) == pytest.approx(golden["mean_ade"], abs=ROUNDING)
        assert metrics.fde(recorded, HORIZON) == pytest.approx(golden["fde_per_sample"], abs=ROUNDING)
        assert metrics.min_fde(recorded, HORIZON) == pytest.approx(golden["min_fde"], abs=ROUNDING)

    @pytest.mark.parametrize("horizon", [0.5, 1.0, 3.0, 5.0])
    def test_the_recipes(self, golden: Mapping[str, Array], recorded: Array, horizon: float) -> None:
        ours = metrics.min_ade_of_best(recorded, metrics.steps_of(horizon))
        assert ours == pytest.approx(golden[f"recipes/min_ade_by_t={horizon}"], abs=ROUNDING)
        assert metrics.min_ade_of_best(recorded, HORIZON) == pytest.approx(golden["recipes/min_ade"], abs=ROUNDING)

    def test_alpasim_at_each_of_its_horizons(self, golden: Mapping[str, Array], recorded: Array) -> None:
        in_space = metrics.distances_3d(golden["pred_xyz"], golden["gt_xyz"][:, None])
        for column, horizon in enumerate(golden["alpasim/time_deltas_s"].tolist()):
            steps = metrics.steps_of(horizon)
            for name, ours in {
                "min_ade_xy": metrics.min_ade(recorded, steps),
                "min_ade_xyz": metrics.min_ade(in_space, steps),
                "min_ade_xy_query_at_t0": metrics.min_ade_queried_at_t0(recorded, steps),
            }.items():
                assert ours == pytest.approx(golden[f"alpasim/{name}"][:, column], abs=ROUNDING), (name, horizon)


class TestDisplacement:
    def test_a_trajectory_has_no_error_against_itself(self) -> None:
        distance = metrics.distances(straight(10.0), straight(10.0))
        assert metrics.ade(distance, HORIZON) == 0
        assert metrics.fde(distance, HORIZON) == 0

    def test_one_metre_a_second_too_fast_is_as_far_off_as_the_seconds_that_passed(self) -> None:
        distance = metrics.distances(straight(11.0), straight(10.0))
        for horizon in metrics.HORIZONS_S:
            steps = metrics.steps_of(horizon)
            assert metrics.fde(distance, steps) == pytest.approx(horizon)
            assert metrics.ade(distance, steps) == pytest.approx((horizon + 0.1) / 2)

    def test_height_counts_in_space_alone(self) -> None:
        raised = moved(straight(10.0), 0, 0, 3)
        assert metrics.ade(metrics.distances(raised, straight(10.0)), HORIZON) == 0
        assert metrics.ade(metrics.distances_3d(raised, straight(10.0)), HORIZON) == pytest.approx(3)

    def test_two_metres_are_no_miss_yet(self) -> None:
        distance = metrics.distances(np.stack([straight(5.0, 2.0), straight(5.0, 2.001)]), straight(5.0))
        assert metrics.is_miss(distance, HORIZON).tolist() == [False, True]

    @pytest.mark.parametrize("horizon", [0.0, -1.0, 0.05, 6.45])
    def test_a_horizon_between_two_steps_is_refused(self, horizon: float) -> None:
        with pytest.raises(ValueError, match="expected a positive multiple"):
            metrics.steps_of(horizon)

    @pytest.mark.parametrize("steps", [0, 65])
    def test_a_horizon_that_was_not_predicted_is_refused(self, steps: int) -> None:
        with pytest.raises(ValueError, match="expected 1 to 64"):
            metrics.ade(np.zeros(HORIZON), steps)


class TestBestOfSeveral:
    def test_the_best_sample_may_be_another_one_at_each_horizon(self) -> None:
        early, late = np.r_[np.zeros(10), np.full(54, 5.0)], np.full(HORIZON, 1.0)
        distance = np.stack([early, late])
        assert metrics.min_ade(distance, 10) == 0  # the one that is right at first
        assert metrics.min_ade_of_best(distance, 10) == 1  # the one that is better over all
        assert metrics.min_ade(distance, HORIZON) == metrics.min_ade_of_best(distance, HORIZON) == 1

    @settings(max_examples=50, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1), samples=st.integers(1, 6), steps=st.integers(1, HORIZON))
    def test_more_samples_never_make_the_best_worse(self, seed: int, samples: int, steps: int) -> None:
        distance = np.random.default_rng(seed).exponential(size=(samples + 1, HORIZON))
        assert metrics.min_ade(distance, steps) <= metrics.min_ade(distance[:-1], steps)
        assert metrics.min_fde(distance, steps) <= metrics.min_fde(distance[:-1], steps)
        assert metrics.min_ade(distance, steps) <= metrics.min_ade_of_best(distance, steps)

    def test_spread_is_the_mean_distance_between_samples(self) -> None:
        fan = np.stack([straight(5.0, y) for y in (0.0, 1.0, 3.0)])
        assert metrics.mean_pairwise_distance(fan, HORIZON) == pytest.approx((1 + 3 + 2) / 3)
        assert metrics.mean_pairwise_distance(fan[:1], HORIZON) == 0


class TestDirection:
    def test_ahead_and_to_the_left_are_positive(self) -> None:
        along, across = metrics.longitudinal_lateral(moved(straight(10.0), 2, 1, 0), straight(10.0), headings(0.0))
        assert along == pytest.approx(np.full(HORIZON, 2.0))
        assert across == pytest.approx(np.full(HORIZON, 1.0))

    def test_it_turns_with_the_vehicle_that_was_driven(self) -> None:
        driving_left = headings(np.pi / 2)  # ego y is forward there, and ego -x is left
        along, across = metrics.longitudinal_lateral(moved(straight(0.0), -1, 2, 0), straight(0.0), driving_left)
        assert along == pytest.approx(np.full(HORIZON, 2.0))
        assert across == pytest.approx(np.full(HORIZON, 1.0))

    @settings(max_examples=50, deadline=None)
    @given(yaw=st.floats(-10, 10), dx=st.floats(-50, 50), dy=st.floats(-50, 50))
    def test_both_parts_make_up_the_distance(self, yaw: float, dx: float, dy: float) -> None:
        truth, predicted = straight(3.0), moved(straight(3.0), dx, dy, 0)
        parts = metrics.longitudinal_lateral(predicted, truth, headings(yaw))
        assert np.hypot(*parts) == pytest.approx(metrics.distances(predicted, truth), abs=1e-9)

    def test_heading_errors_take_the_short_way_round(self) -> None:
        error = metrics.heading_error(headings(np.pi - 0.1), headings(-np.pi + 0.1))
        assert error == pytest.approx(np.full(HORIZON, -0.2))


class TestMissThresholdsOfWaymo:
    @pytest.mark.parametrize(
        ("horizon", "speed", "expected"),
        [
            (3.0, 20.0, (1.0, 2.0)),
            (5.0, 11.0, (1.8, 3.6)),
            (8.0, 30.0, (3.0, 6.0)),
            (3.0, 0.0, (0.5, 1.0)),
            (5.0, 1.4, (0.9, 1.8)),
            (5.0, 6.2, (1.35, 2.7)),  # half way between the speeds: three quarters
            (6.5, 11.0, (2.4, 4.8)),  # half way between 5 and 8 s
        ],
    )
    def test_they_grow_with_speed_and_horizon(
        self, horizon: float, speed: float, expected: tuple[float, float]
    ) -> None:
        assert metrics.waymo_thresholds(horizon, speed) == pytest.approx(expected)

    @pytest.mark.parametrize("horizon", [1.0, 2.9, 8.1])
    def test_there_are_none_outside_of_its_horizons(self, horizon: float) -> None:
        assert metrics.waymo_thresholds(horizon, 10.0) is None


def test_a_path_is_as_long_as_was_driven_from_the_origin() -> None:
    assert metrics.path_length(straight(10.0)) == pytest.approx(64.0)
    there_and_back = np.array([[3.0, 4.0, 7.0], [0.0, 0.0, 0.0]])
    assert metrics.path_length(there_and_back) == pytest.approx(10.0)
