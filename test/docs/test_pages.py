"""The pages name what there is: every tool, and files and headings that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TOOLS = ROOT / "alpamayo_ros" / "tools"


def programs() -> set[str]:
    return {
        (path.parent if path.name == "__main__.py" else path).stem
        for path in TOOLS.rglob("*.py")
        if 'if __name__ == "__main__"' in path.read_text()
    } - {"bench_load"}  # which bench starts


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_table_of_tools_has_every_program_and_no_other() -> None:
    rows = [line.split("|")[1] for line in (ROOT / "docs" / "tools.md").read_text().splitlines() if "|" in line]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == programs()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        file, _, heading = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        if heading:
            assert heading in {anchor(each) for each in re.findall(r"^#+ (.*)$", path.read_text(), re.M)}, target
