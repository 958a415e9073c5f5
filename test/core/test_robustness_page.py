"""The page on robustness names tests that exist, and no skip reason is missing in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from alpamayo_ros.core.types import SkipReason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "robustness.md").read_text()
NAMED = sorted(set(re.findall(r"`([a-z_/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[f"{file}::{name}" for file, name in NAMED])
def test_a_test_that_is_named_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(def|class) {name}\b", (ROOT / "test" / file).read_text(), re.MULTILINE)


def test_every_row_names_a_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    headings = {row for row in rows if row.endswith("| test |")}
    without = [row for row in rows if row not in headings and "::" not in row and not row.endswith("| the same |")]
    assert without == []


def test_every_skip_reason_has_a_row() -> None:
    assert [reason.value for reason in SkipReason] == re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
