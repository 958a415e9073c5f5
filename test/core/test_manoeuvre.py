"""A future is named after what the vehicle did in it."""

import numpy as np
import pytest

from alpamayo_ros.core.manoeuvre import MANOEUVRES, manoeuvre, speed_bin, speed_bins
from alpamayo_ros.core.types import HORIZON

TIMES = np.arange(1, HORIZON + 1) * 0.1


def named(start: float, end: float, turn_deg: float = 0.0) -> str:
    """Of a drive whose speed changes steadily from start to end, m/s, and whose heading turns steadily."""
    duration = TIMES[-1]
    x = start * TIMES + (end - start) * TIMES**2 / (2 * duration)
    headings = np.deg2rad(turn_deg) * TIMES / duration
    rotation = np.zeros((HORIZON, 3, 3))
    rotation[:, 0, 0] = rotation[:, 1, 1] = np.cos(headings)
    rotation[:, 1, 0], rotation[:, 0, 1], rotation[:, 2, 2] = np.sin(headings), -np.sin(headings), 1
    return manoeuvre(start, np.stack([x, 0 * x, 0 * x], axis=-1), rotation)


@pytest.mark.parametrize(
    ("start", "end", "turn", "expected"),
    [
        (0.0, 0.0, 0.0, "standing"),
        (0.0, 5.0, 0.0, "start"),
        (0.0, 5.0, 60.0, "start"),
        (8.0, 0.0, 0.0, "stop"),
        (10.0, 10.0, 14.0, "straight"),
        (10.0, 10.0, 16.0, "left"),
        (10.0, 10.0, -16.0, "right"),
        (10.0, 10.0, 200.0, "left"),  # the long way round
    ],
)
def test_kinds(start: float, end: float, turn: float, expected: str) -> None:
    assert named(start, end, turn) == expected
    assert expected in MANOEUVRES


def test_every_speed_has_one_bin() -> None:
    assert [speed_bin(speed) for speed in (0.0, 0.49, 0.5, 9.99, 10.0, 30.0, 60.0)] == [
        *("0-0.5", "0-0.5", "0.5-5", "5-10", "10-15", "30+", "30+"),
    ]
    assert speed_bins() == ["0-0.5", "0.5-5", "5-10", "10-15", "15-20", "20-30", "30+"]
