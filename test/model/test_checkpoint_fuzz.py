"""Whatever a weight file's header says, it is taken for what it is or refused by name, without large allocations."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alpamayo_ros.core.types import ConfigurationError
from alpamayo_ros.model.checkpoint import SINGLE_FILE, Checkpoint

ANY = settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
NUMBERS = st.integers(-(2**70), 2**70) | st.sampled_from([0, 1, 4, 8, 2**31, 2**63])
VALUES = st.none() | NUMBERS | st.text(max_size=4) | st.lists(NUMBERS, max_size=3)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "I64", "X9", ""]) | VALUES,
        "shape": st.lists(NUMBERS, max_size=3) | VALUES,
        "data_offsets": st.lists(NUMBERS, max_size=3) | VALUES,
    },
)


def opens_or_is_named(folder: Path, data: bytes) -> None:
    file = folder / SINGLE_FILE
    file.write_bytes(data)
    refused = ""
    tracemalloc.start()
    try:
        Checkpoint.open(folder)
    except ConfigurationError as error:
        refused = str(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert not refused or str(file) in refused
    assert peak < 10_000_000, "a file of some bytes needs no megabytes"


def with_header(header: bytes, data: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + data


@ANY
@given(st.binary(max_size=80))
@example(b"\xff" * 8)
@example((2**62).to_bytes(8, "little") + b"{}")
def test_any_bytes(tmp_path: Path, data: bytes) -> None:
    opens_or_is_named(tmp_path, data)


@ANY
@given(
    st.dictionaries(st.text(max_size=4) | st.just("__metadata__"), ENTRIES | VALUES, max_size=3), st.binary(max_size=16)
)
@example({"a": {"dtype": "F32", "shape": [1], "data_offsets": "04"}}, bytes(4))
@example({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, bytes(4))
@example({"a": {"dtype": "F32", "shape": [1], "data_offsets": [2**62, 2**62 + 4]}}, bytes(4))
@example({"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4))
@example({"a": {"dtype": "F32", "data_offsets": [0, 4]}}, bytes(4))
def test_any_header(tmp_path: Path, header: dict[str, Any], data: bytes) -> None:
    opens_or_is_named(tmp_path, with_header(json.dumps(header).encode(), data))


def test_nested_deeper_than_anything_can_read(tmp_path: Path) -> None:
    opens_or_is_named(tmp_path, with_header(b"[" * 100_000, b""))
