"""The lines of ticks.jsonl as a table for pandas, DuckDB and their like, where pyarrow is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TABLE = "ticks.parquet"
TEXTS = ("skip", "skip_numbers", "navigation", "reasoning", "finish_reason", "metrics.manoeuvre")
AS_JSON = ("skip_numbers",)  # its keys differ from tick to tick

Records = Sequence[Mapping[str, Any]]


def write_table(path: Path, records: Records) -> bool:
    """Write a Parquet file: a row per tick, a column for each figure, such as `metrics.chosen.ade.6.4`.

    Args:
        path: of the file.
        records: the lines of ticks.jsonl.

    Returns:
        False, and nothing is written, where pyarrow is not installed.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        return False
    rows = [dict(_flat(record)) for record in records]
    names = list(dict.fromkeys(name for row in rows for name in row))
    names.sort(key=lambda name: name.startswith(("timings_ms.", "metrics.")))  # a skipped tick has none of them
    known = {
        **dict.fromkeys(TEXTS, pyarrow.string()),
        "position": pyarrow.list_(pyarrow.float64()),
        "reasoning_of_samples": pyarrow.list_(pyarrow.string()),
    }
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        unknown = all(value is None for value in values)  # the type of such a column can't be told from it
        kind = known.get(name, pyarrow.float64() if unknown else None)
        columns[name] = pyarrow.array(values, type=kind)
    parquet.write_table(pyarrow.table(columns), path)
    return True


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        if name in AS_JSON:
            yield name, json.dumps(value)
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif name != "metrics":  # None of a skipped tick
            yield name, value
