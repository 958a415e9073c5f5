"""One vLLM engine for all tests of this folder, on the tiny checkpoint: on a CPU in float32, eagerly.

On a machine with a GPU and a vLLM for it, the same tests run there (make test-gpu).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
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
def engine(checkpoint: Path) -> Iterator[VllmEngine]:
    pytest.importorskip("vllm", reason="needs vLLM: make test-vllm, with Python 3.11 or newer")
    engine = VllmEngine.load(
        str(checkpoint), dtype="float32", max_samples=4, max_cameras=4, kv_cache_memory=KV_CACHE_GIB
    )
    engine.warm_up()
    yield engine
    engine.close()
    gc.collect()
