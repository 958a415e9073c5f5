"""Limits are kept, broken, or can't be told; the last is no success."""

from typing import Any

import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.evaluation.thresholds import broken, figure, parse_limit

REPORT: dict[str, Any] = {
    "ticks": {"total": 10, "skipped": 3},
    "metrics": {
        "min_ade": {"6": {"n": 5, "mean": 1.25}, "16": {"n": 0, "mean": None}},
        "chosen": {"fde": {"5.0": {"n": 5, "mean": 4.0}}, "miss": {"6.4": {"n": 5, "rate": 0.4}}},
    },
    "timings_ms": {"engine_total": {"n": 7, "median": 80.0, "p99": 120.0}},
}


@pytest.mark.parametrize(
    ("name", "value"),
    [("minADE6", 1.25), ("FDE@5.0", 4.0), ("miss@6.4", 0.4), ("latencyP99", 120.0), ("skipped", 0.3)],
)
def test_figures_have_short_names(name: str, value: float) -> None:
    assert figure(REPORT, name) == value


def test_a_figure_above_its_limit_is_named_with_both_numbers() -> None:
    assert broken(REPORT, [parse_limit("minADE6=1.5"), parse_limit("minADE6=1.25")]) == []
    (said,) = broken(REPORT, [parse_limit("minADE6=1.2")])
    assert said == "minADE6 is 1.25, above 1.2"


@pytest.mark.parametrize("name", ["minADE16", "minADE1", "ADE@1.0"])
def test_a_figure_that_is_not_known_breaks_its_limit(name: str) -> None:
    assert "not known" in broken(REPORT, [parse_limit(f"{name}=100")])[0]
    assert "not known" in broken({**REPORT, "metrics": {}}, [parse_limit("minADE6=100")])[0]


@pytest.mark.parametrize("text", ["minADE6", "minADE7=1", "=1", "minADE6=much", "minADE6=1=2"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--fail-above"):
        parse_limit(text)
