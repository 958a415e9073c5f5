"""The table has what the lines have, and is left out where pyarrow isn't."""

import json
import sys
from pathlib import Path

import pytest
from drives import circle, record, rig, write_bag

from alpamayo_ros.engine.null_engine import NullEngine
from alpamayo_ros.evaluation.bag import BagReader
from alpamayo_ros.evaluation.evaluate import Job, evaluate
from alpamayo_ros.evaluation.inputs import BagInputs
from alpamayo_ros.evaluation.ticks_table import write_table


@pytest.fixture
def results(tmp_path: Path) -> Path:
    settings = rig()
    with BagReader(write_bag(tmp_path / "drive", record(circle(8.0, 40.0), 10))) as bag:
        evaluate(Job(bag, BagInputs(bag, settings), settings, NullEngine(), pictures=1), tmp_path / "out")
    return tmp_path / "out"


def test_every_figure_of_a_line_is_in_its_row(results: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    rows = parquet.read_table(results / "ticks.parquet").to_pylist()
    ticks = [json.loads(line) for line in (results / "ticks.jsonl").read_text().splitlines()]
    assert len(rows) == len(ticks)
    for row, tick in zip(rows, ticks, strict=True):
        assert (row["t0_ns"], row["skip"], row["reasoning"]) == (tick["t0_ns"], tick["skip"], tick["reasoning"])
        assert json.loads(row["skip_numbers"]) == tick["skip_numbers"]
        metrics = tick["metrics"]
        expected = None if metrics is None else metrics["baselines"]["stop"]["ade"]["6.4"]
        assert row["metrics.baselines.stop.ade.6.4"] == expected
        assert row["metrics.chosen.miss.1.0"] == (None if metrics is None else metrics["chosen"]["miss"]["1.0"])
        assert row["timings_ms.engine_total"] == tick["timings_ms"].get("engine_total")
        assert row["position"] == tick["position"]
    assert json.loads((results / "report.json").read_text())["files"]["table"] == "ticks.parquet"


def test_columns_have_the_same_types_in_a_drive_without_a_path(tmp_path: Path, results: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    ticks = [json.loads(line) for line in (results / "ticks.jsonl").read_text().splitlines()]
    assert write_table(tmp_path / "skipped.parquet", [tick for tick in ticks if tick["skip"]])
    whole, skipped = (parquet.read_schema(file) for file in (results / "ticks.parquet", tmp_path / "skipped.parquet"))
    for name in ("t0_ns", "skip", "reasoning", "speed", "navigation", "position"):
        assert skipped.field(name).type == whole.field(name).type, name


def test_without_pyarrow_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert write_table(tmp_path / "ticks.parquet", [{"t0_ns": 1}]) is False
    assert list(tmp_path.iterdir()) == []
