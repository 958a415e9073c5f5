"""The fused expert computes what the plain one does, on every device's attention."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.flow import fused_expert
from alpamayo_ros.engine.flow.fp8_expert import Fp8Expert
from alpamayo_ros.engine.flow.fused_expert import FusedExpert, LayerTiles
from alpamayo_ros.engine.flow.paged_attention import Attend, PagedContext, attend
from alpamayo_ros.engine.flow.paged_cache import LayerCache, PagedPrefixes
from alpamayo_ros.engine.flow.simulated_fp8 import simulate_fp8
from alpamayo_ros.engine.kernels.launch import INTERPRETED
from alpamayo_ros.engine.kernels.skinny_product import Tiles
from alpamayo_ros.engine.kernels.split_attention import attend_with_own
from alpamayo_ros.model.expert import Expert, ExpertLayer, rotary_angles
from alpamayo_ros.model.geometry import DecoderGeometry

GEOMETRY = DecoderGeometry(
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    rms_norm_eps=1e-6,
    rope_theta=5e6,
)
TOKENS, BLOCK, BLOCKS, LENGTHS = 16, 16, 9, (37, 50)
TOLERANCE = {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}
ONE_WAY = LayerTiles(
    qkv=Tiles(16, 32, 4, 3, 2), out=Tiles(16, 32, 4, 3, 2), gate_up=Tiles(16, 32, 4, 3), down=Tiles(16, 32, 4, 3, 3)
)


def make_expert(dtype: torch.dtype, device: torch.device) -> Expert:
    torch.manual_seed(0)
    expert = Expert(GEOMETRY).eval().requires_grad_(False)
    for parameter in expert.parameters():
        parameter.copy_(torch.randn_like(parameter) * (0.1 if parameter.ndim == 1 else 0.15))
        if parameter.ndim == 1:
            parameter.add_(1)
    return expert.to(device, dtype)


def make_context(dtype: torch.dtype, device: torch.device, samples: int, how: Attend) -> PagedContext:
    prefixes = PagedPrefixes.empty(len(LENGTHS), 4, device)
    prefixes.block_table.copy_(torch.tensor([[3, 1, 4, 0], [5, 2, 6, 8]]))
    prefixes.lengths.copy_(torch.tensor(LENGTHS))
    prefixes.first_positions.copy_(torch.tensor([11, 29]))
    make = lambda: torch.randn(BLOCKS, BLOCK, 2, 16, device=device).to(dtype)  # noqa: E731
    layers = [LayerCache(make(), make()) for _ in range(GEOMETRY.num_hidden_layers)]
    angles = rotary_angles(prefixes.first_positions, TOKENS, GEOMETRY, dtype)
    return PagedContext(prefixes, layers, samples, *angles, how)


def by_kernel(query, key, value, layer, prefixes):  # type: ignore[no-untyped-def]
    return attend_with_own(query, key, value, layer.keys, layer.values, prefixes.block_table, prefixes.lengths)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("samples", [1, 3])
def test_it_is_the_plain_expert(
    samples: int, few: bool, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_expert, "MOST_FEW_ROWS", 1000 if few else 0)
    plain = make_expert(dtype, device)
    exact = copy.deepcopy(plain).float()
    fused = FusedExpert(plain, tiles=ONE_WAY)
    embeddings = torch.randn(len(LENGTHS) * samples, TOKENS, GEOMETRY.hidden_size, device=device).to(dtype)
    context = make_context(dtype, device, samples, by_kernel)
    wide = make_context(torch.float32, device, samples, attend)
    for mine, its in zip(context.layers, wide.layers, strict=True):
        its.keys.copy_(mine.keys)
        its.values.copy_(mine.values)
    expected = exact(embeddings.float(), wide)
    before = embeddings.clone()
    error = (fused(embeddings, context).float() - expected).norm() / expected.norm()
    assert error < TOLERANCE[dtype]
    assert torch.equal(embeddings, before), "the caller's embeddings stay as they are"
    plain_context = make_context(dtype, device, samples, attend)
    for mine, its in zip(context.layers, plain_context.layers, strict=True):
        its.keys.copy_(mine.keys)
        its.values.copy_(mine.values)
    left = plain(embeddings, plain_context).float()
    assert (left - expected).norm() / expected.norm() < TOLERANCE[dtype], (
        "the plain one works on with the joined weights"
    )


def test_no_weight_is_in_memory_twice(device: torch.device) -> None:
    expert = make_expert(torch.float32, device)
    before = {name: tensor.clone() for name, tensor in expert.state_dict().items()}
    FusedExpert(expert)
    after = expert.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in after.values()}
    assert sum(storages.values()) == sum(4 * math.prod(tensor.shape) for tensor in before.values())


def test_ranks_add_their_parts_up(device: torch.device) -> None:
    """A sum over two ranks that are the same doubles what attention and MLP add to the residual stream."""
    expert = make_expert(torch.float32, device)
    doubled = copy.deepcopy(expert)
    for layer in doubled.layers:
        layer.self_attn.o_proj.weight.mul_(2)  # type: ignore[union-attr, operator]
        layer.mlp.down_proj.weight.mul_(2)  # type: ignore[union-attr, operator]
    context = make_context(torch.float32, device, 1, attend)
    embeddings = torch.randn(2, TOKENS, GEOMETRY.hidden_size, device=device)
    summed = FusedExpert(expert, lambda part: part + part, ONE_WAY)(embeddings, context)
    torch.testing.assert_close(summed, doubled(embeddings, context), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("samples", [1, 3])
def test_the_one_in_fp8_is_the_simulated_one(samples: int, device: torch.device) -> None:
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    exact = make_expert(dtype, device)
    simulated = copy.deepcopy(exact)
    simulate_fp8(simulated)
    embeddings = torch.randn(len(LENGTHS) * samples, TOKENS, GEOMETRY.hidden_size, device=device).to(dtype)
    context = make_context(dtype, device, samples, by_kernel)
    expected, near = exact(embeddings, context).float(), simulated(embeddings, context).float()
    rounded = Fp8Expert(exact)
    assert not any(isinstance(layer, ExpertLayer) for layer in exact.layers), "no weight is in memory twice"
    ours = rounded(embeddings, context).float()

    def off(left: Tensor, right: Tensor) -> float:
        return float((left - right).norm() / right.norm())

    assert 0 < off(near, expected) < 0.1
    assert off(ours, near) < (0.25 if INTERPRETED else 0.1)  # see assert_rounded in test_fp8.py
    assert off(ours, expected) < (0.25 if INTERPRETED else 0.1)
