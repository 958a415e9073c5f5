"""The pages name what there is: every tool, and files and headings that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TOOLS = ROOT / "alpamayo_ros" / "tools"


def programs() -> set[str]:
    files = [*TOOLS.glob("*.py"), *TOOLS.glob("*/__main__.py")]
    found = {path for path in files if 'if __name__ == "__main__"' in path.read_text()}
    return {path.parent.name if path.stem == "__main__" else path.stem for path in found} - {"bench_load"}  # bench's


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_table_of_tools_has_every_program_and_no_other() -> None:
    rows = [line.split("|")[1] for line in (ROOT / "docs" / "tools.md").read_text().splitlines() if "|" in line]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == programs()


@pytest.mark.parametrize("name", sorted(programs()))
def test_its_help_says_how_it_is_started(name: str) -> None:
    command = [sys.executable, "-m", f"alpamayo_ros.tools.{name}", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"usage: python -m alpamayo_ros.tools.{name} ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        file, _, heading = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        if heading:
            assert heading in {anchor(each) for each in re.findall(r"^#+ (.*)$", path.read_text(), re.M)}, target
