"""The CUDA sources compile, without a GPU, and everything that a thread keeps fits into its registers."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings and NVRTC: make test-kernels")

from alpamayo_ros.engine.kernels import decode_attention
from alpamayo_ros.engine.kernels.cuda_program import compile_source
from alpamayo_ros.engine.kernels.sample_attention import source_constants

SIZES = dict(source_constants(heads=16, kv_heads=8, block_size=16))
DECODING = dict(decode_attention.source_constants(heads=32, kv_heads=8, block_size=16))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("sample_attention", SIZES),
        ("sample_attention", SIZES | {"BLOCK": 32}),
        ("decode_attention", DECODING),
        ("decode_attention", DECODING | {"BLOCK": 32}),
        *(("decode_attention", DECODING | {"GROUP": group}) for group in (1, 3, 8)),
    ],
)
def test_a_source_compiles_and_spills_nothing(name: str, sizes: dict[str, int]) -> None:
    compiled = compile_source(name, sizes)
    assert compiled.code.startswith(b"\x7fELF")
    if not compiled.log:
        pytest.skip("this NVRTC says nothing of registers: the pinned one does, `make test-kernels`")
    assert "0 bytes spill stores, 0 bytes spill loads" in compiled.log
    assert "serialized" not in compiled.log, "the compiler makes the tensor cores wait"


def test_what_does_not_compile_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"sample_attention\.cu does not compile:(?s:.*)BLOCK"):
        compile_source("sample_attention", {name: size for name, size in SIZES.items() if name != "BLOCK"})
    for name, sizes in (("sample_attention", SIZES), ("decode_attention", DECODING)):
        with pytest.raises(RuntimeError, match="static assertion"):
            compile_source(name, sizes | {"BLOCK": 24})
