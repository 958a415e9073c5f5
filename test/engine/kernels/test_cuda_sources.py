"""The CUDA sources compile, without a GPU, and everything that a thread keeps fits into its registers."""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings and NVRTC: make test-kernels")

from alpamayo_ros.engine.kernels.cuda_program import compile_source

EXPERT = {"INNER": 8256, "BLOCK": 16, "EPSILON": 1e-6}
SAMPLES = {"HEADS": 16, "KV_HEADS": 8, "BLOCK": 16}


@pytest.mark.parametrize(("name", "constants"), [("expert_layers", EXPERT), ("sample_attention", SAMPLES)])
def test_a_source_compiles_and_spills_nothing(name: str, constants: dict[str, int | float]) -> None:
    compiled = compile_source(name, constants)
    assert compiled.code.startswith(b"\x7fELF")
    assert "0 bytes spill stores, 0 bytes spill loads" in compiled.log
    assert "serialized" not in compiled.log, "the compiler makes the tensor cores wait"


def test_what_does_not_compile_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"expert_layers\.cu does not compile:(?s:.*)INNER"):
        compile_source("expert_layers", {"BLOCK": 16, "EPSILON": 1e-6})
    with pytest.raises(RuntimeError, match="static assertion"):
        compile_source("expert_layers", EXPERT | {"INNER": 8256 + 32})
