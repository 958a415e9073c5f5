"""One vLLM engine for all tests of this folder, on the tiny checkpoint: on a CPU in float32, eagerly.

On a machine with a GPU and a vLLM for it, the same tests run there (make test-gpu).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from overlapped_steps import OTHER_SCHEDULING, overlapped_steps
from tiny_checkpoint import write_tiny_checkpoint

from alpamayo_ros.engine.transformers_engine import TransformersEngine
from alpamayo_ros.engine.vllm.engine import VllmEngine

torch.set_num_threads(1)
torch.backends.cudnn.allow_tf32 = False  # float32 has to be float32 on a GPU, too

KV_CACHE_GIB = 0.0075  # some 30 blocks of a CPU, so that some tests can fill it


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny")


@pytest.fixture(scope="session")
def reference(checkpoint: Path) -> TransformersEngine:
    return TransformersEngine.load(str(checkpoint), device="cpu", dtype="float32", max_samples=4, max_cameras=4)


@pytest.fixture(scope="session")
def engine(checkpoint: Path, request: pytest.FixtureRequest) -> Iterator[VllmEngine]:
    """As it is by default; a test may ask for OTHER_SCHEDULING instead (indirect=True)."""
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm, with Python 3.11 or newer")
    overlapped = torch.cuda.is_available() != (getattr(request, "param", None) == OTHER_SCHEDULING)
    with overlapped_steps(overlapped):
        engine = VllmEngine.load(
            str(checkpoint), dtype="float32", max_samples=4, max_cameras=4, kv_cache_memory=KV_CACHE_GIB
        )
        engine.warm_up()
        yield engine
        engine.close()
    gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the other scheduling last: that takes one start of an engine more, not two."""
    items.sort(key=lambda item: OTHER_SCHEDULING in item.name)
