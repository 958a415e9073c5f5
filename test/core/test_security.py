"""Nothing that a checkpoint, a bag, a scenario or a message holds is ever executed or imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "alpamayo_ros"
SOURCES = sorted(PACKAGE.rglob("*.py"))

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
CALLS = {  # what unpickles, executes, or goes through a shell
    "torch.load",
    "torch.jit.load",
    "torch.package.PackageImporter",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "runpy.run_path",
}
FORBIDDEN_WORDS = {"allow_pickle": True, "shell": True, "trust_remote_code": True}
# import_module with a name that is no literal: where it comes from
IMPORTS = {
    "evaluation/zstd.py": "a list in that file",
    "tools/play_bag.py": "the bag's topic types, after it is certain that the package is one of messages",
}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def faults(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"line {node.lineno} imports {name}" for name in names if name.split(".")[0] in MODULES]
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func)
        if called in BUILTINS | CALLS:
            found.append(f"line {node.lineno} calls {called}")
        for word in node.keywords:
            if word.arg in FORBIDDEN_WORDS and not (isinstance(word.value, ast.Constant) and word.value.value is False):
                found.append(f"line {node.lineno} gives {word.arg}")
        literal = bool(node.args) and isinstance(node.args[0], ast.Constant)
        name = str(path.relative_to(PACKAGE))
        if called.split(".")[-1] == "import_module" and not literal and name not in IMPORTS:
            found.append(f"line {node.lineno} imports what a variable says")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_source_runs_or_unpickles_what_it_reads(path: Path) -> None:
    assert faults(path) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from dill import loads",
        "import torch\ntorch.load('x')",
        "eval('1')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "from importlib import import_module\nimport_module(name)",
    ],
)
def test_what_is_forbidden_is_found(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    (tmp_path / "bad.py").write_text(text)
    assert len(faults(tmp_path / "bad.py")) == 1
