"""What the ticks come to: sums that add up, and every figure with its n."""

import json

import numpy as np
import pytest
from scenes import observation

from alpamayo_ros.core.select import select
from alpamayo_ros.core.types import HORIZON, SamplingOptions, Skip, SkipReason
from alpamayo_ros.engine.null_engine import INFO, NullEngine
from alpamayo_ros.evaluation.ground_truth import Future
from alpamayo_ros.evaluation.replay import Tick
from alpamayo_ros.evaluation.report import OPEN_LOOP, RANDOM_WEIGHTS, Record, notes, summarise, table, tick_record
from alpamayo_ros.evaluation.scores import score

TIMES = np.arange(1, HORIZON + 1) * 0.1


def predicted(driven_speed: float, steps: int = HORIZON) -> Record:
    """A tick that predicts 10 m/s straight on, of a vehicle that drives at that speed."""
    scene = observation(speed=10.0)
    made = NullEngine().predict(scene, SamplingOptions(num_samples=1))
    chosen = select(made)
    xyz = np.stack([driven_speed * TIMES, 0 * TIMES, 0 * TIMES], axis=-1)[:steps]
    future = Future(xyz, np.broadcast_to(np.eye(3), (steps, 3, 3)))
    tick = Tick(5, observation=scene, prediction=made, chosen=chosen, engine_ms=3.0, seed=1)
    return tick_record(tick, score(scene, made, chosen, future))


def skipped(reason: SkipReason) -> Record:
    return tick_record(Tick(5, skip=Skip(reason, 4, {reason.value: {"age_s": float("nan")}})), None)


RECORDS = [
    predicted(9.0),
    predicted(7.0),
    predicted(10.0, steps=20),
    skipped(SkipReason.CAMERA_GAP),
    skipped(SkipReason.CAMERA_STALE),
    skipped(SkipReason.CAMERA_GAP),
]


def test_ticks_are_ok_or_skipped_for_a_reason() -> None:
    found = summarise(RECORDS)
    assert found["ticks"] == {"total": 6, "ok": 3, "skipped": 3, "with_full_future": 2}
    assert found["skips"] == {"camera_gap": 2, "camera_stale": 1}


def test_figures_are_over_the_ticks_that_know_them() -> None:
    metrics = summarise(RECORDS)["metrics"]
    assert metrics["chosen"]["fde"]["2.0"] == pytest.approx({"n": 3, "mean": 8 / 3, "median": 2.0, "p90": 5.2})
    assert metrics["chosen"]["fde"]["6.4"] == pytest.approx({"n": 2, "mean": 12.8, "median": 12.8, "p90": 17.92})
    assert metrics["chosen"]["miss"]["2.0"] == pytest.approx({"n": 3, "rate": 1 / 3})
    assert metrics["baselines"]["constant_velocity"]["fde"]["2.0"]["mean"] == pytest.approx(8 / 3)
    assert metrics["min_ade"]["6"] == {"n": 0, "mean": None, "median": None, "p90": None}


def test_signed_figures_have_their_bias_and_their_size() -> None:
    metrics = summarise([predicted(9.0), predicted(11.0)])["metrics"]["chosen"]
    assert metrics["longitudinal"]["1.0"]["mean"] == pytest.approx(0.0, abs=1e-9)
    assert metrics["longitudinal"]["1.0"]["mean_absolute"] == pytest.approx(1.0)


def test_the_model_is_set_against_each_baseline_tick_by_tick() -> None:
    found = summarise(RECORDS)["against_baselines"]
    for name in ("constant_velocity", "constant_turn_rate_and_acceleration", "history_repeated"):
        # the null engine goes straight on too
        assert found[name]["fde"]["6.4"] == pytest.approx({"n": 2, "blocks": 1, "mean": 0, "low": None, "high": None})
    assert found["stop"]["fde"]["2.0"]["n"] == 3
    assert found["stop"]["fde"]["2.0"]["mean"] == pytest.approx(8 / 3 - (18 + 14 + 20) / 3)
    assert found["stop"]["min_ade"]["1"]["mean"] == pytest.approx(6.5 - 8 * 3.25)
    assert found["stop"]["longitudinal"]["1.0"]["mean"] == pytest.approx((1 + 3 + 0) / 3 - (9 + 7 + 10) / 3)
    assert found["stop"]["progress"]["1.0"]["mean"] == pytest.approx((1 + 3 + 0) / 3 - (9 + 7 + 10) / 3)
    assert found["stop"]["miss"]["1.0"]["mean"] == pytest.approx(1 / 3 - 1)  # a share: 3 m off against all
    assert found["stop"]["heading"]["5.0"]["mean"] == 0.0
    assert found["stop"]["first_point"]["mean"] == pytest.approx((0.1 + 0.3 + 0) / 3 - (0.9 + 0.7 + 1) / 3)


def test_kinds_of_driving_have_their_own_figures() -> None:
    found = summarise(RECORDS)
    assert {name: group["ticks"] for name, group in found["by_speed"].items()} == {"10-15": 3}
    assert {name: group["ticks"] for name, group in found["by_manoeuvre"].items()} == {"straight": 2}
    assert found["by_manoeuvre"]["straight"]["chosen"]["fde"]["6.4"]["mean"] == pytest.approx(12.8)


def test_rates_count_what_is_known() -> None:
    metrics = summarise(RECORDS)["metrics"]
    assert metrics["chosen"]["miss_waymo"]["5.0"] == {"n": 2, "rate": 1.0}
    assert metrics["within_bounds"]["all"] == {"n": 3, "rate": 1.0}
    assert metrics["agreement"]["chose_best"] == {"n": 0, "rate": None}


def test_timings_are_over_the_ticks_that_ran() -> None:
    found = summarise(RECORDS)["timings_ms"]
    assert found["engine_total"] == {"n": 3, "median": 3.0, "p99": 3.0}
    assert found["predict"]["n"] == 3


def test_no_ticks_are_no_error() -> None:
    found = summarise([])
    assert found["ticks"]["total"] == 0
    assert found["metrics"] == {}
    assert "no tick" in table(found)


def test_every_line_is_json_with_the_same_keys() -> None:
    assert len({tuple(record) for record in RECORDS}) == 1
    for record in RECORDS:
        json.dumps(record, allow_nan=False)
    assert RECORDS[3]["skip_numbers"] == {"camera_gap": {"age_s": None}}


def test_the_table_shows_the_model_beside_the_baselines() -> None:
    lines = {line[:36].strip(): line[36:].split() for line in table(summarise(RECORDS)).splitlines()}
    assert lines["chosen path"] == ["0.73", "1.40", "3.10", "5.10", "6.50", "100%"]
    assert lines["constant velocity"] == lines["chosen path"]
    assert lines["stop"][-1] == "100%"
    assert lines["ticks"] == ["3", "3", "2", "2", "2"]


def test_untrained_weights_are_called_meaningless_and_open_loop_is_named() -> None:
    assert notes("transformers", trained=False) == [OPEN_LOOP, RANDOM_WEIGHTS]
    assert notes("transformers", trained=True) == [OPEN_LOOP]
    assert "null engine" in notes(INFO.engine, trained=INFO.trained)[1]
