"""The CUDA sources compile, without a GPU, and everything that a thread keeps fits into its registers."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings and NVRTC: make test-kernels")

from alpamayo_ros.engine.kernels.cuda_program import compile_source
from alpamayo_ros.engine.kernels.sample_attention import source_constants

SIZES = dict(source_constants(heads=16, kv_heads=8, block_size=16))


@pytest.mark.parametrize("block", [16, 32])
def test_a_source_compiles_and_spills_nothing(block: int) -> None:
    compiled = compile_source("sample_attention", SIZES | {"BLOCK": block})
    assert compiled.code.startswith(b"\x7fELF")
    if not compiled.log:
        pytest.skip("this NVRTC says nothing of registers: the pinned one does, `make test-kernels`")
    assert "0 bytes spill stores, 0 bytes spill loads" in compiled.log
    assert "serialized" not in compiled.log, "the compiler makes the tensor cores wait"


def test_what_does_not_compile_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"sample_attention\.cu does not compile:(?s:.*)BLOCK"):
        compile_source("sample_attention", {name: size for name, size in SIZES.items() if name != "BLOCK"})
    with pytest.raises(RuntimeError, match="static assertion"):
        compile_source("sample_attention", SIZES | {"BLOCK": 24})
