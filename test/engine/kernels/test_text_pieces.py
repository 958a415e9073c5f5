"""The native engine's layers as kernels compute what they compute in plain torch."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.native.kernel_pieces import KernelPieces
from alpamayo_ros.engine.native.pieces import PlainPieces

SIZE, INNER, HEADS, KV_HEADS, DIM, BLOCK = 64, 96, 4, 2, 32, 16


def normal(*shape: int, seed: int, dtype: torch.dtype, device: torch.device, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * scale).to(device, dtype)


@pytest.mark.parametrize("tokens", [1, 6, 70])
def test_a_layer_of_kernels_is_the_plain_one(tokens: int, dtype: torch.dtype, device: torch.device) -> None:
    def of(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
        return normal(*shape, seed=seed, dtype=dtype, device=device, scale=scale)

    qkv = of((HEADS + 2 * KV_HEADS) * DIM, SIZE, seed=0, scale=SIZE**-0.5)
    gate_up, down = of(2 * INNER, SIZE, seed=1, scale=SIZE**-0.5), of(SIZE, INNER, seed=2, scale=INNER**-0.5)
    head = of(203, SIZE, seed=3, scale=SIZE**-0.5)
    norms = 1 + of(SIZE, seed=4, scale=0.1)
    head_norms = (1 + of(DIM, seed=5, scale=0.1), 1 + of(DIM, seed=6, scale=0.1))
    angle = torch.rand(tokens, DIM // 2, generator=torch.Generator().manual_seed(7)).repeat(1, 2).to(device) * 6
    rotary = (angle.cos().to(dtype), angle.sin().to(dtype))
    slots = torch.randperm(8 * BLOCK, generator=torch.Generator().manual_seed(8))[:tokens].to(device)
    results = []
    for do in (PlainPieces(), KernelPieces()):
        hidden = of(tokens, SIZE, seed=9)
        cache = LayerCache(*torch.zeros(2, 8, BLOCK, KV_HEADS, DIM, dtype=dtype, device=device))
        states = do.product(hidden, norms, 1e-6, qkv)
        query = do.norm_and_rotate(states, head_norms, 1e-6, rotary, cache, slots)
        inner = do.gated_product(hidden, norms, 1e-6, gate_up)
        added = do.added_product(hidden.clone(), inner, down)
        results.append((states, query, cache.keys, cache.values, inner, added, do.product(added, norms, 1e-6, head)))
    tolerance = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    for plain, kernels in zip(*results, strict=True):
        assert kernels.shape == plain.shape
        assert kernels.dtype == plain.dtype
        torch.testing.assert_close(kernels, plain, atol=tolerance, rtol=tolerance)
    assert (results[0][2] != 0).any(-1).all(-1).sum() == tokens
