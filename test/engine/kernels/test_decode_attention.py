"""One kernel does what norm, rotation, the cache's new entry and attention of a token do: needs a Hopper GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

pytest.importorskip("triton", reason="needs Triton: make test-kernels")

from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.kernels.between_products import Destination, HeadNorms
from alpamayo_ros.engine.kernels.decode_attention import MOST_TOKENS, fits
from alpamayo_ros.engine.kernels.matvec import linear
from alpamayo_ros.engine.kernels.split_attention import attend_causal
from alpamayo_ros.engine.native.attention import attention_of_one
from alpamayo_ros.engine.native.kernel_pieces import KernelPieces
from alpamayo_ros.engine.native.text_model import NewTokens
from alpamayo_ros.model import pointwise

HEADS, KV_HEADS, DIM, EPS = 32, 8, 128, 1e-6
LENGTHS = (0, 1, 15, 16, 17, 127, 128, 1000, 3090, 3106, 3300, 6000)
MOST = 6016


@dataclass(frozen=True, eq=False)
class Step:
    """A token and a row of the cache that it comes into; nobody has written what stands behind it."""

    cache: LayerCache
    new: NewTokens
    table: Tensor
    lengths: Tensor

    def go_to(self, length: int) -> None:
        """In place: another token, after so many."""
        size = self.cache.keys.shape[1]
        self.table.copy_(torch.randperm(self.table.numel(), device=self.table.device)[None] + 1)
        self.lengths.fill_(length)
        self.new.slots.copy_(self.table[0, length // size] * size + length % size)
        self.new.states.normal_()
        angle = torch.rand(1, DIM // 2, device=self.table.device).repeat(1, 2) * 6
        self.new.rotary[0].copy_(angle.cos())
        self.new.rotary[1].copy_(angle.sin())
        for memory in (self.cache.keys, self.cache.values):
            memory.normal_()
            memory[self.table[0, length // size + 1 :].long()] = math.nan
            memory[self.table[0, length // size].long(), length % size :] = math.nan


def make_step(length: int, block: int, device: torch.device, heads: int = HEADS, packed: bool = False) -> Step:
    """Packed: as another cache may have it, keys and values of a token side by side."""
    torch.manual_seed(length)
    blocks = MOST // block + 1
    if packed:
        memory = torch.empty(blocks + 1, KV_HEADS, block, 2 * DIM, device=device).bfloat16().transpose(1, 2)
        cache = LayerCache(memory[..., :DIM], memory[..., DIM:])
    else:
        cache = LayerCache(*torch.empty(2, blocks + 1, block, KV_HEADS, DIM, device=device).bfloat16())
    norms = ((1 + 0.1 * torch.randn(2, DIM, device=device)).bfloat16()).unbind()
    states, *rotary = (
        torch.empty(1, size, device=device).bfloat16() for size in ((heads + 2 * KV_HEADS) * DIM, DIM, DIM)
    )
    slots = torch.zeros(1, dtype=torch.int64, device=device)
    new = NewTokens(states, (norms[0], norms[1]), EPS, (rotary[0], rotary[1]), slots, KernelPieces())
    table = torch.zeros(1, blocks, dtype=torch.int32, device=device)
    step = Step(cache, new, table, torch.zeros(1, dtype=torch.int32, device=device))
    step.go_to(length)
    return step


def by_one(step: Step) -> Tensor | None:
    attend = attention_of_one(step.table.device)
    return attend and attend(step.cache, step.new, step.table, step.lengths)


def by_several(step: Step) -> Tensor:
    query = step.new.write(step.cache)
    return attend_causal(query[None], step.cache.keys, step.cache.values, step.table, step.lengths)[0]


def copied(step: Step) -> Step:
    return replace(step, cache=LayerCache(step.cache.keys.clone(), step.cache.values.clone()))


def in_float32(step: Step) -> Tensor:
    """[1, heads, dim], by what is in the cache before the step."""
    length, new = int(step.lengths), step.new
    states = new.states.float().view(-1, DIM)
    query, key, value = states.split((len(states) - 2 * KV_HEADS, KV_HEADS, KV_HEADS))
    cosines, sines = (each.float()[None] for each in new.rotary)
    query, key = (
        pointwise.norm_and_rotate(each[None, None, None], weight.float(), EPS, cosines, sines)[0, 0, 0]
        for each, weight in zip((query, key), new.head_norms, strict=True)
    )
    keys, values = (
        torch.cat((memory[step.table[0].long()].flatten(0, 1)[:length].float(), own[None])).transpose(0, 1)
        for memory, own in ((step.cache.keys, key), (step.cache.values, value))
    )
    mixed = functional.scaled_dot_product_attention(query[None, :, None], keys[None], values[None], enable_gqa=True)
    return mixed[:, :, 0]


def off(left: Tensor, right: Tensor) -> float:
    return float((left.float() - right.float()).norm() / right.float().norm())


def same_bits(left: Tensor, right: Tensor) -> bool:
    return torch.equal(left.view(torch.int16), right.view(torch.int16))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("block", "heads", "packed"),
    [(16, HEADS, False), (32, HEADS, False), (16, 8, True), (64, 24, False), (16, 64, False)],
)
def test_it_is_what_several_kernels_do(length: int, block: int, heads: int, packed: bool, hopper: torch.device) -> None:
    step = make_step(length, block, hopper, heads, packed)
    expected, other = in_float32(step), copied(step)
    ours, theirs = by_one(step), by_several(other)
    assert ours is not None
    assert ours.shape == theirs.shape
    assert off(ours, expected) < 5e-3
    assert off(ours, theirs) < 5e-3
    assert same_bits(step.cache.values, other.cache.values)
    if heads <= 4 * KV_HEADS:
        assert same_bits(step.cache.keys, other.cache.keys)
    else:  # the other kernel adds up a key by several warps, in another order
        assert off(step.cache.keys.nan_to_num(), other.cache.keys.nan_to_num()) < 1e-4
    assert all(torch.equal(by_one(step), ours) for _ in range(20)), "the same numbers each time"


def test_a_captured_one_follows_the_row(hopper: torch.device) -> None:
    """Length, blocks and slot are read when a graph runs, not when it was recorded."""
    step = make_step(3106, 16, hopper)
    by_one(step)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = by_one(step)
    assert recorded is not None
    for length in (0, 1500, 3200, 5999):
        step.go_to(length)
        other = copied(step)
        graph.replay()
        assert torch.equal(recorded, by_one(other))
        assert same_bits(step.cache.keys, other.cache.keys)
        assert same_bits(step.cache.values, other.cache.values)


def test_tokens_follow_each_other_in_a_graph(hopper: torch.device) -> None:
    """Each reads what those before have written, while the product that gives its states may still run."""
    step = make_step(3098, 16, hopper)
    other = copied(step)
    hidden = torch.randn(24, 1, 512, device=hopper).bfloat16()
    weight = (torch.randn(step.new.states.shape[1], 512, device=hopper) / 16).bfloat16()
    slots = [step.table[:, column // 16].long() * 16 + column % 16 for column in range(3098, 3122)]

    def run(its: Step, do: Callable[[Step], Tensor | None]) -> list[Tensor | None]:
        mixed = []
        for number, slot in enumerate(slots):
            its.lengths.fill_(3098 + number)
            new = replace(its.new, states=linear(hidden[number], weight), slots=slot)
            mixed.append(do(replace(its, new=new)))
        return mixed

    run(step, by_one)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        ours = run(step, by_one)
    graph.replay()
    for one, several in zip(ours, run(other, by_several), strict=True):
        assert one is not None
        assert several is not None
        assert off(one, several) < 5e-3
    assert same_bits(step.cache.keys, other.cache.keys)
    assert same_bits(step.cache.values, other.cache.values)


def test_other_shapes_are_left_to_other_kernels() -> None:
    """By what doesn't need the GPU itself: sizes, types and strides."""
    norms = HeadNorms(*torch.ones(2, DIM).bfloat16(), EPS)
    angles, memory = torch.zeros(1, DIM).bfloat16(), torch.zeros(4, 16, 2, DIM).bfloat16()
    table, states = torch.zeros(1, 2, dtype=torch.int32), torch.zeros(1, 8 * DIM).bfloat16()
    to = Destination(memory, memory, torch.zeros(1, dtype=torch.int64))
    assert fits(states, norms, angles, angles, to, table)
    wider = torch.zeros(4, 16, 2, DIM + 1).bfloat16()[..., :DIM]
    for its_states, its_table, its in (
        (torch.zeros(2, 8 * DIM).bfloat16(), table, to),
        (torch.zeros(1, 22 * DIM).bfloat16(), table, to),  # nine queries of a KV head
        (torch.zeros(1, 7 * DIM).bfloat16(), table, to),  # three queries of two KV heads
        (states.float(), table, to),
        (states, table.repeat(2, 1), to),
        (states, table.repeat(1, MOST_TOKENS // 32 + 1), to),
        (states, table.long(), to),
        (states, torch.zeros(1, 4, dtype=torch.int32)[:, ::2], to),
        (
            states,
            table,
            replace(to, keys=memory[..., :64], values=memory[..., :64]),
        ),  # twelve queries, but of 64 numbers
        (states, table, replace(to, slots=torch.zeros(1, dtype=torch.int32))),
        (states, table, replace(to, keys=memory.float())),
        (states, table, replace(to, values=memory[:2])),
        (states, table, replace(to, keys=wider, values=wider)),
        (states, table, replace(to, slots=None)),
        (states, table, replace(to, keys=memory[:, :8], values=memory[:, :8])),
    ):
        assert not fits(its_states, norms, angles, angles, its, its_table)
    assert not fits(states, norms, angles.repeat(2, 1), angles.repeat(2, 1), to, table)


def test_without_a_gpu_there_is_none() -> None:
    assert attention_of_one(torch.device("cpu")) is None
