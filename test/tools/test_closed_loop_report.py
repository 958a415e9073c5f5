"""Reports of routes that were driven side by side become one, and the model card tells what stands in it."""

import json
from pathlib import Path

import pytest

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.sim.scoring import ClosedLoopScore
from alpamayo_ros.tools import closed_loop_report, mini_card
from alpamayo_ros.tools.closed_loop_report import FORMAT, joined, read_report, results, scores_of, write_report


def route(seed: int, departure: float | None = None, collisions: int = 0) -> ClosedLoopScore:
    return ClosedLoopScore(
        seed=seed,
        length_m=500.0,
        distance_m=500.0,
        seconds=60.0,
        arrived=departure is None,
        lane_departures=int(departure is not None),
        first_departure_m=departure,
        collisions=collisions,
        mean_offset_m=0.1,
        max_offset_m=0.3,
    )


def report(*routes: ClosedLoopScore, engine: str = "an engine") -> dict:
    expert = results([route(each.seed) for each in routes])
    stop = results([route(each.seed, departure=30.0) for each in routes])
    return {
        "format": FORMAT,
        "engine": engine,
        "trained": True,
        "ticks": {"trajectories": 10, "skips": {"time_jump": len(routes)}},
        **results(routes),
        "compared": {"expert": expert, "stop": stop},
        "latency_s": 0.1,
        "versions": {"torch": "2"},
    }


def test_one_report_comes_of_several(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = [report(route(12), route(13, 80.0)), report(route(10), route(11, collisions=1))]
    paths = [write_report(part, tmp_path / str(number)) for number, part in enumerate(parts)]
    arguments = [*map(str, paths), "--out", str(tmp_path / "all")]
    assert closed_loop_report.main(arguments) == 0
    whole = read_report(tmp_path / "all" / "report.json")
    assert [each.seed for each in scores_of(whole)] == [10, 11, 12, 13]
    assert scores_of(whole)[3] == route(13, 80.0)
    assert whole["passed"] == 2
    assert whole["compared"]["expert"]["passed"] == 4
    assert whole["ticks"] == {"trajectories": 20, "skips": {"time_jump": 4}}
    assert "2 of 4 routes driven to their end" in capsys.readouterr().out


def test_what_cant_be_joined_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="differ in engine"):
        joined([report(route(1)), report(route(2), engine="another")])
    with pytest.raises(ConfigurationError, match=r"routes \[1\] are in several"):
        joined([report(route(1)), report(route(1))])
    (tmp_path / "other.json").write_text(json.dumps({"format": "else"}))
    with pytest.raises(ConfigurationError, match="has the format 'else'"):
        read_report(tmp_path / "other.json")


def test_the_model_card_tells_what_stands_in_the_reports(tmp_path: Path) -> None:
    scores = {
        "ticks": 50,
        "min_ade_1_m": 0.812,
        "min_ade_6_m": 0.5,
        "best_baseline_ade_m": 4.0,
        "driven": {"min_ade_1_m": 1.5, "min_ade_6_m": 1.2, "best_baseline_ade_m": 4.1, "plan_ade_m": 0.95},
        "sentence_accuracy": 0.93,
        "junctions": {"plain": 0.9, "guided": None},
    }
    (tmp_path / "scores.json").write_text(json.dumps(scores))
    path = write_report(report(route(1), route(2, 120.0), route(3, 80.0), route(4, collisions=2)), tmp_path)
    card = tmp_path / "README.md"
    arguments = ["--scores", str(tmp_path / "scores.json"), "--closed-loop", str(path), "--out", str(card)]
    (tmp_path / "notes.md").write_text("## Where it fails\n\nHere.\n")
    arguments += ["--notes", str(tmp_path / "notes.md")]
    assert mini_card.main(arguments) == 0
    text = card.read_text()
    assert "| minADE over 1 sample, 6.4 s | 0.81 m | 1.50 m |" in text
    assert "| the expert's plan itself, 6.4 s | | 0.95 m |" in text
    assert "| the same with guidance weight 1.5 | no case |" in text
    assert "| routes passed | 1 of 4 |" in text
    assert "| left the lane | 2, first after 100 m (median) |" in text
    assert text.endswith("\n## Where it fails\n\nHere.\n")
    assert "| never left the lane | 2 of 4 |" in text
    assert "| hit a car | 1 |" in text
    assert "through the node. A route" in text.replace("\n", " ")
    assert "| passed by the expert's own plans | 4 of 4 |" in text
    assert "| passed by standing | 0 of 4 |" in text
    assert "Closed loop" not in mini_card.model_card(scores)
    assert "Not scored yet." in mini_card.model_card(None)
