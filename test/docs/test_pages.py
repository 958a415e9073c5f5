"""The pages name what there is: every tool, and files and headings that exist."""

from __future__ import annotations

import json
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


ASK_ALL = """
import contextlib, io, json, runpy, sys, traceback

said = {}
for name in sys.argv[1:]:
    for module in [each for each in sys.modules if each.split(".")[0] == "alpamayo_ros"]:
        del sys.modules[module]  # each program has to import on its own what it needs of this package
    sys.argv, out = [name, "--help"], io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            runpy.run_module("alpamayo_ros.tools." + name, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            said[name] = (end.code, out.getvalue())
        except BaseException:
            said[name] = (1, traceback.format_exc())
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, tuple[int, str]]:
    """Every program's status and help, from one process: half of them load torch, which takes seconds."""
    command = [sys.executable, "-c", ASK_ALL, *sorted(programs())]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return json.loads(shown.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", sorted(programs()))
def test_its_help_says_how_it_is_started(said: dict[str, tuple[int, str]], name: str) -> None:
    status, text = said[name]
    assert status == 0, text
    assert text.startswith(f"usage: python -m alpamayo_ros.tools.{name} ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        file, _, heading = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), target
        if heading:
            assert heading in {anchor(each) for each in re.findall(r"^#+ (.*)$", path.read_text(), re.M)}, target
