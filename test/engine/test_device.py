"""One thread for a tiny model on a CPU, unless the environment says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from alpamayo_ros.engine.device import TINY, limit_threads
from alpamayo_ros.engine.transformers_engine import TransformersEngine


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Torch with two threads, and an environment that doesn't say how many it has."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_engine_computes_with_one_thread_when_it_has_loaded_a_tiny_model(checkpoint: Path) -> None:
    TransformersEngine.load(str(checkpoint), device="cpu").close()
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(("device", "parameters"), [("cpu", TINY), ("cuda", TINY - 1)])
def test_a_larger_model_or_one_on_a_gpu_keeps_its_threads(device: str, parameters: int) -> None:
    limit_threads(torch.device(device), parameters)
    assert torch.get_num_threads() == 2


def test_the_environment_decides_when_it_says_how_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    limit_threads(torch.device("cpu"), TINY - 1)
    assert torch.get_num_threads() == 2
