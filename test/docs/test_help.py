"""Every program's --help says how it is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "alpamayo_ros" / "tools"
PROGRAMS = sorted(
    (path.parent if path.name == "__main__.py" else path).relative_to(TOOLS).with_suffix("").as_posix()
    for path in TOOLS.rglob("*.py")
    if 'if __name__ == "__main__"' in path.read_text()
)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "bench_load"])  # which bench starts
def test_it_names_itself_as_it_is_started(name: str) -> None:
    command = [sys.executable, "-m", f"alpamayo_ros.tools.{name}", "--help"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert shown.startswith(f"usage: python -m alpamayo_ros.tools.{name} ")
