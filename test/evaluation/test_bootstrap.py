"""Intervals are honest about ticks that overlap."""

import numpy as np
import pytest

from alpamayo_ros.evaluation.bootstrap import blocks, mean_interval

SECOND = 1_000_000_000


def stamps(count: int, step_s: float = 0.5) -> list[int]:
    return [round(number * step_s * SECOND) for number in range(count)]


def test_a_block_is_no_longer_than_a_prediction() -> None:
    found = blocks(stamps(40))
    assert np.bincount(found).tolist() == [13, 13, 13, 1]  # 6.4 s begin at 0, 6.5, 13, 19.5 s


def test_another_bag_begins_another_block() -> None:
    assert blocks([5 * SECOND, 6 * SECOND, 1 * SECOND, 2 * SECOND]).tolist() == [0, 0, 1, 1]


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    random, held = np.random.default_rng(1), 0
    for _ in range(100):
        of_block = np.repeat(random.normal(1.0, 1.0, size=30), 13)[:390]
        found = mean_interval((of_block + random.normal(0, 0.1, 390)).tolist(), stamps(390))
        held += found["low"] <= 1.0 <= found["high"]
    assert 85 <= held <= 100  # ticks drawn one by one would hold it about 40 times


def test_it_is_the_same_every_time_and_around_the_mean() -> None:
    values = np.random.default_rng(2).normal(size=200).tolist()
    found = mean_interval(values, stamps(200))
    assert found == mean_interval(values, stamps(200))
    assert found["n"] == 200
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["low"] < found["mean"] < found["high"]


def test_a_short_drive_has_no_interval() -> None:
    found = mean_interval([1.0, 2.0, 3.0], stamps(3))
    assert found == {"n": 3, "blocks": 1, "mean": 2.0, "low": None, "high": None}
    assert mean_interval([], []) == {"n": 0, "blocks": 0, "mean": None, "low": None, "high": None}
