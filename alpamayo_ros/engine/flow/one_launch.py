"""The expert's layers over one trajectory in one launch, on a GPU that can (kernels/cuda/expert_layers.cu).

One trajectory is bound by the weights' bytes. As kernels that follow each other, a layer takes twice as long as its
bytes do; in one launch weights are on their way all the time.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.paged_attention import PagedContext
from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.kernels.cuda_program import CudaKernel, in_pieces, on_device, tensor_map, usable_kernel
from alpamayo_ros.engine.kernels.launch import multiprocessors
from alpamayo_ros.engine.kernels.sample_attention import KEYS_BOX
from alpamayo_ros.model.geometry import DecoderGeometry

if TYPE_CHECKING:
    from alpamayo_ros.engine.flow.fused_expert import FusedLayer

TOKENS = 64  # of a trajectory
MOST_ROWS = 2  # prefixes, one launch each: a guided tick's two are still faster than by kernels that follow each other
SIZES = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
TASKS = 128  # programs of all stages but gate and up
CHUNK = 64  # of gate and up, a program
MOST_INNER_TASKS = 136
FLAGS = 256  # of a layer, int32
THREADS = 384
LAYER_BYTES = 832

# What programs hand to each other, as struct Work in the source lays it out.
WORK = {
    "qkv_parts": (torch.float32, (4, 32, TOKENS, 128)),
    "sum_parts": (torch.float32, (8, 16, TOKENS, 128)),
    "mixed_parts": (torch.float32, (16, 16, TOKENS, 128)),
    "softmax": (torch.float32, (16, 16, TOKENS, 2)),
    "squares": (torch.float32, (16, TOKENS)),
    "rows": (torch.bfloat16, (TOKENS, 2048)),
    "query": (torch.bfloat16, (16, TOKENS, 128)),
    "own": (torch.bfloat16, (2 * 8, TOKENS, 128)),
    "mixed": (torch.bfloat16, (TOKENS, 2048)),
}
READ_BY_BOXES = ("rows", "mixed", "inner", "query", "own")  # struct WorkMaps


@dataclass(frozen=True, eq=False)
class _Ready:
    """What a launch over some caches needs."""

    caches: list[int]
    kernel: CudaKernel
    layers: Tensor
    work_maps: Tensor


class OneLaunch:
    """The expert's layers, without the final norm. One stream at a time: its programs hand things on in one memory.

    Args:
        geometry: Of the expert.
        layers: Their weights, which are read where they lie.
        eps: Of the norms.
    """

    def __init__(self, geometry: DecoderGeometry, layers: Sequence[FusedLayer[Tensor]], eps: float) -> None:
        device = layers[0].qkv.device
        inner = geometry.intermediate_size
        self._layers = layers
        self._constants = (("INNER", inner), ("EPSILON", eps))
        self._programs = max(TASKS, inner // CHUNK)
        self._scale = math.log2(math.e) / math.sqrt(geometry.head_dim)
        shapes = {**WORK, "inner": (torch.bfloat16, (TOKENS, inner))}
        ends, end = {}, 0
        for name, (dtype, shape) in shapes.items():
            ends[name] = end = end + math.prod(shape) * dtype.itemsize
        self._work = torch.empty(end, dtype=torch.uint8, device=device)
        self.handed_on = {  # views of it, by name
            name: self._work[ends[name] - math.prod(shape) * dtype.itemsize : ends[name]].view(dtype).view(shape)
            for name, (dtype, shape) in shapes.items()
        }
        self._flags = torch.zeros(len(layers) + 1, FLAGS, dtype=torch.int32, device=device)
        self._ready: _Ready | None = None

    @classmethod
    def where_possible(
        cls, geometry: DecoderGeometry, layers: Sequence[FusedLayer[Tensor]], eps: float
    ) -> OneLaunch | None:
        """None: sizes or numbers are others, or the GPU is smaller."""
        weight = layers[0].qkv
        if weight.dtype != torch.bfloat16 or not weight.is_cuda:
            return None
        inner = geometry.intermediate_size
        if (
            any(getattr(geometry, name) != size for name, size in SIZES.items())
            or inner % CHUNK
            or inner // CHUNK > MOST_INNER_TASKS
            or multiprocessors(weight.device) < max(TASKS, inner // CHUNK)
        ):
            return None
        return cls(geometry, layers, eps)

    def takes(self, embeddings: Tensor, context: PagedContext) -> bool:
        """Whether these can be computed: one trajectory after each of at most two prefixes."""
        return (
            context.samples == 1
            and embeddings.shape[0] <= MOST_ROWS
            and embeddings.shape[1] == TOKENS
            and all(in_pieces(cache) for cache in (context.layers[0].keys, context.layers[0].values))
            and self._for(context.layers) is not None
        )

    def __call__(self, hidden: Tensor, context: PagedContext) -> None:
        """Replace embeddings [R 64, hidden_size] by the last layer's output."""
        ready = self._for(context.layers)
        assert ready is not None, "takes() said so"
        for row in range(len(context.cosines)):
            self._flags.zero_()
            ready.kernel.launch(
                (self._programs, 1, 1),
                THREADS,
                (
                    ready.layers,
                    len(self._layers),
                    ready.work_maps,
                    self._flags,
                    self._work,
                    hidden[row * TOKENS :],
                    context.cosines[row],
                    context.sines[row],
                    context.prefixes.block_table[row],
                    context.prefixes.lengths[row:],
                    self._scale,
                ),
                together=True,
            )

    def _for(self, caches: Sequence[LayerCache]) -> _Ready | None:
        places = [memory.data_ptr() for cache in caches for memory in (cache.keys, cache.values)]
        if self._ready is None or self._ready.caches != places:
            block_size = caches[0].keys.shape[1]
            kernel = usable_kernel("expert_layers", (*self._constants, ("BLOCK", block_size)), self._work.device)
            if kernel is None:
                return None
            described = [_described(layer, cache) for layer, cache in zip(self._layers, caches, strict=True)]
            maps = [tensor_map(self.handed_on[name], _box(self.handed_on[name])) for name in READ_BY_BOXES]
            # The row behind the last gives the norm after the last layer, whose numbers nobody reads.
            layers = on_device(b"".join([*described, described[-1]]), self._work.device)
            self._ready = _Ready(places, kernel, layers, on_device(b"".join(maps), self._work.device))
        return self._ready


def _described(layer: FusedLayer[Tensor], cache: LayerCache) -> bytes:
    """struct Layer of the source."""
    gate_up = layer.gate_up.unflatten(0, (2, -1))
    boxes = [(layer.qkv, (128, 64)), (layer.out, (128, 64)), (layer.down, (128, 64)), (gate_up, (2, 32, 64))]
    boxes += [(cache.keys, KEYS_BOX), (cache.values, KEYS_BOX)]
    norms = (layer.first_norm, layer.second_norm, layer.head_norms.query, layer.head_norms.key)
    described = b"".join(tensor_map(memory, box) for memory, box in boxes)
    return (described + struct.pack("4q", *(norm.data_ptr() for norm in norms))).ljust(LAYER_BYTES, b"\0")


def _box(memory: Tensor) -> tuple[int, ...]:
    """64 tokens by 64 numbers."""
    return (*(1 for _ in memory.shape[:-2]), TOKENS, 64)
