"""The native engine's layers as kernels compute what they compute in plain torch."""

from __future__ import annotations

import pytest
import torch

from alpamayo_ros.engine.native.kernel_pieces import KernelPieces
from alpamayo_ros.engine.native.pieces import PlainPieces
from alpamayo_ros.engine.vllm.kv_layout import LayerCache

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
        normed = do.add_and_norm(hidden, None, norms, 1e-6)
        query = do.norm_and_rotate(do.product(normed, qkv), head_norms, 1e-6, rotary, cache, slots)
        inner = do.gated_product(normed, gate_up)
        last = do.add_and_norm(hidden, do.product(inner, down), norms, 1e-6)
        results.append((query, cache.keys, cache.values, inner, hidden, last, do.logits(last, head)))
    tolerance = {torch.float32: 2e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    for plain, kernels in zip(*results, strict=True):
        assert kernels.shape == plain.shape
        assert kernels.dtype == plain.dtype
        torch.testing.assert_close(kernels, plain, atol=tolerance, rtol=tolerance)
    assert (results[0][1] != 0).any(-1).all(-1).sum() == tokens
