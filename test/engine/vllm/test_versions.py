"""Without vLLM, or with one that nobody tried: said at once, with what to install."""

from __future__ import annotations

import logging
from importlib import metadata
from pathlib import Path

import pytest

from alpamayo_ros.core.types import EngineError
from alpamayo_ros.engine.vllm.engine import VllmEngine
from alpamayo_ros.engine.vllm.versions import check_version


@pytest.mark.parametrize("version", ["0.25.1", "0.26.0", "0.32.0", "0.32.0+cpu"])
def test_tested_versions_are_taken_silently(version: str, caplog: pytest.LogCaptureFixture) -> None:
    check_version(version)
    assert not caplog.records


@pytest.mark.parametrize("version", ["0.25.0", "0.27.2", "0.33.1"])
def test_versions_between_are_taken_with_a_warning(version: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_version(version)
    assert [record.getMessage() for record in caplog.records] == [
        f"vllm is {version}, which was not tested with this package; 0.25.1, 0.26.0, 0.32.0 were"
    ]


@pytest.mark.parametrize("version", ["0.24.9", "0.34.0", "1.0", "nonsense"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(EngineError, match=r"0\.25\.1, 0\.26\.0, 0\.32\.0"):
        check_version(version)


def test_a_missing_vllm_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    with pytest.raises(EngineError, match=r"vllm is not installed; python -m pip install vllm==0\.26\.0"):
        VllmEngine.load(str(tmp_path))
