"""The expert in one launch, and the attention of many trajectories, compute what float32 does: needs a Hopper GPU."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.flow.fused_expert import FusedExpert
from alpamayo_ros.engine.flow.one_launch import OneLaunch
from alpamayo_ros.engine.flow.paged_attention import PagedContext, attend, attention_for
from alpamayo_ros.engine.flow.paged_cache import LayerCache, PagedPrefixes
from alpamayo_ros.engine.kernels.cuda_program import in_pieces, usable_kernel
from alpamayo_ros.engine.kernels.sample_attention import attend_to_prefix_and_own
from alpamayo_ros.engine.kernels.split_attention import attend_with_own
from alpamayo_ros.model.expert import Expert, rotary_angles
from alpamayo_ros.model.geometry import DecoderGeometry

FULL_SIZE = DecoderGeometry(
    hidden_size=2048,
    intermediate_size=8256,
    num_hidden_layers=3,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    rms_norm_eps=1e-6,
    rope_theta=5e6,
)
TOKENS, BLOCK, BLOCKS = 64, 16, 210
TOLERANCE = 1e-2


@pytest.fixture
def hopper(device: torch.device) -> torch.device:
    if device.type != "cuda" or torch.cuda.get_device_capability(device) != (9, 0):
        pytest.skip("needs a Hopper GPU (compute capability 9.0)")
    return device


def make_expert(dtype: torch.dtype, device: torch.device, geometry: DecoderGeometry = FULL_SIZE) -> Expert:
    torch.manual_seed(0)
    with torch.device("meta"):
        expert = Expert(geometry).eval().requires_grad_(False)
    expert = expert.to(dtype).to_empty(device=device)
    for name, parameter in expert.named_parameters():
        if parameter.ndim == 1:
            parameter.normal_(1, 0.1)
        else:
            share = 0.5 if "o_proj" in name or "down" in name else 1.0
            parameter.normal_(0, share * parameter.shape[1] ** -0.5)
    return expert


def make_caches(device: torch.device, layers: int) -> list[LayerCache]:
    shape = (2 * BLOCKS + 1, BLOCK, 8, 128)
    return [LayerCache(*(torch.randn(shape, device=device).bfloat16() for _ in "kv")) for _ in range(layers)]


def in_float32(caches: Sequence[LayerCache]) -> list[LayerCache]:
    return [LayerCache(cache.keys.float(), cache.values.float()) for cache in caches]


def make_prefixes(lengths: Sequence[int], device: torch.device) -> PagedPrefixes:
    prefixes = PagedPrefixes.empty(len(lengths), BLOCKS, device)
    for row in range(len(lengths)):
        prefixes.block_table[row].copy_(torch.randperm(2 * BLOCKS)[:BLOCKS] + 1)
    prefixes.lengths.copy_(torch.tensor(lengths))
    prefixes.first_positions.copy_(torch.tensor([max(0, length - 200) for length in lengths]))
    return prefixes


def off(left: Tensor, right: Tensor) -> float:
    return float((left.float() - right.float()).norm() / right.float().norm())


@pytest.mark.parametrize("lengths", [(3106,), (3077,), (640,), (200,), (17,), (1,), (3100, 3086)])
def test_the_expert_in_one_launch_is_the_plain_one(lengths: tuple[int, ...], hopper: torch.device) -> None:
    expert = make_expert(torch.bfloat16, hopper)
    exact = copy.deepcopy(expert).float()
    caches, prefixes = make_caches(hopper, 3), make_prefixes(lengths, hopper)
    embeddings = torch.randn(len(lengths), TOKENS, 2048, device=hopper).bfloat16()
    before = embeddings.clone()
    wide = PagedContext(
        prefixes,
        in_float32(caches),
        1,
        *rotary_angles(prefixes.first_positions, TOKENS, FULL_SIZE, torch.float32),
        attend,
    )
    angles = rotary_angles(prefixes.first_positions, TOKENS, FULL_SIZE, torch.bfloat16)
    context = PagedContext(prefixes, caches, 1, *angles, attention_for(hopper))
    fused = FusedExpert(expert)
    launch = OneLaunch.where_possible(FULL_SIZE, fused._layers, FULL_SIZE.rms_norm_eps)
    assert launch is not None
    assert launch.takes(embeddings, context)
    expected = exact(embeddings.float(), wide)
    ours = fused(embeddings, context)
    assert off(ours, expected) < TOLERANCE
    assert torch.equal(embeddings, before), "the caller's embeddings stay as they are"
    assert all(torch.equal(fused(embeddings, context), ours) for _ in range(20)), "the same numbers each time"


def test_a_captured_one_follows_the_prefix(hopper: torch.device) -> None:
    """Lengths, blocks and angles are read when a graph runs, not when it was recorded."""
    fused = FusedExpert(make_expert(torch.bfloat16, hopper))
    caches, prefixes = make_caches(hopper, 3), make_prefixes((3106,), hopper)
    embeddings = torch.randn(1, TOKENS, 2048, device=hopper).bfloat16()
    angles = rotary_angles(prefixes.first_positions, TOKENS, FULL_SIZE, torch.bfloat16)
    context = PagedContext(prefixes, caches, 1, *angles, attention_for(hopper))
    fused(embeddings, context)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        recorded = fused(embeddings, context)
    for length in (1500, 3200):
        other = make_prefixes((length,), hopper)
        prefixes.block_table.copy_(other.block_table)
        prefixes.lengths.copy_(other.lengths)
        for mine, its in zip(
            angles, rotary_angles(other.first_positions, TOKENS, FULL_SIZE, torch.bfloat16), strict=True
        ):
            mine.copy_(its)
        embeddings.normal_()
        graph.replay()
        assert torch.equal(recorded, fused(embeddings, context))


@pytest.mark.parametrize(
    ("samples", "lengths"), [(16, (3106,)), (13, (3077,)), (16, (37,)), (16, (1,)), (1, tuple(range(3080, 3096)))]
)
def test_many_trajectories_attend_as_in_float32(samples: int, lengths: tuple[int, ...], hopper: torch.device) -> None:
    (cache,), prefixes = make_caches(hopper, 1), make_prefixes(lengths, hopper)
    shape = (len(lengths), samples, TOKENS)
    query = torch.randn(*shape, 16, 128, device=hopper).bfloat16()
    key, value = (torch.randn(*shape, 8, 128, device=hopper).bfloat16() for _ in "kv")
    ours = attend_to_prefix_and_own(query, key, value, cache.keys, cache.values, prefixes.block_table, prefixes.lengths)
    assert ours is not None
    expected = attend(query.float(), key.float(), value.float(), in_float32([cache])[0], prefixes)
    assert off(ours, expected) < 5e-3
    other = attend_with_own(query, key, value, cache.keys, cache.values, prefixes.block_table, prefixes.lengths)
    assert off(ours, other) < 5e-3


def test_other_shapes_are_left_to_other_kernels(device: torch.device) -> None:
    """By what doesn't need the GPU itself: sizes, types, strides."""
    small = replace(FULL_SIZE, hidden_size=64, intermediate_size=128, num_hidden_layers=1)
    for dtype in (torch.float32, torch.bfloat16):
        layers = FusedExpert(make_expert(dtype, device, small))._layers
        assert OneLaunch.where_possible(small, layers, 1e-6) is None
    memory = torch.zeros(3, 16, 8, 136, dtype=torch.bfloat16, device=device)
    assert in_pieces(memory[..., :128])
    assert not in_pieces(memory[..., 1:129])
    assert not in_pieces(memory.transpose(2, 3))
    assert not in_pieces(torch.zeros(3, 16, 8, 129, dtype=torch.bfloat16, device=device)[..., :128])
    query, own = torch.zeros(1, 16, 32, 4, 16, device=device), torch.zeros(1, 16, 32, 2, 16, device=device)
    cache = torch.zeros(4, 16, 2, 16, device=device)
    table, lengths = torch.zeros(1, 2, dtype=torch.int32), torch.ones(1, dtype=torch.int32)
    assert attend_to_prefix_and_own(query, own, own, cache, cache, table.to(device), lengths.to(device)) is None


def test_without_a_gpu_there_is_no_kernel() -> None:
    assert usable_kernel("expert_layers", (), torch.device("cpu")) is None
