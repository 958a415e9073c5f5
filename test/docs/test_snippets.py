"""The Python of the pages runs as it stands there, page by page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from alpamayo_ros.tools.synthetic_drive import main as synthetic_drive

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
}


def python_of(page: Path) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE))


NOT_EVERYWHERE = ["rclpy", "nav2_msgs"]
WITH_PYTHON = [name for name, page in PAGES.items() if python_of(page)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository as the pages suppose it: with a drive."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "config").symlink_to(ROOT / "config")
    drive = folder / "out" / "drive"
    assert synthetic_drive(["--duration", "4", "--size", "160", "96", "--out", str(drive)]) == 0
    return folder


def test_there_is_python_for_the_evaluation_and_for_the_model() -> None:
    assert {"docs/evaluation.md", "docs/model.md"} <= set(WITH_PYTHON)


@pytest.mark.parametrize("name", WITH_PYTHON)
def test_it_runs(folder: Path, name: str) -> None:
    code = python_of(PAGES[name])
    compile(code, name, "exec")
    missing = [package for package in NOT_EVERYWHERE if f"from {package}" in code and find_spec(package) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
