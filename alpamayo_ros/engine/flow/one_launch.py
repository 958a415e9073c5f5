"""The expert's layers over one trajectory in one launch, on a GPU that can (kernels/cuda/expert_layers.cu).

One trajectory is bound by the weights' bytes. As kernels that follow each other, a layer takes twice as long as its
bytes do; in one launch weights are on their way all the time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.paged_attention import PagedContext
from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.kernels.cuda_program import CudaKernel, in_pieces, usable_kernel
from alpamayo_ros.engine.kernels.launch import multiprocessors
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

# What programs hand to each other, as struct Work in the source lays it out.
WORK = {
    "qkv_parts": (torch.float32, (4, 32, TOKENS, 128)),
    "sum_parts": (torch.float32, (8, 16, TOKENS, 128)),
    "mixed_parts": (torch.float32, (16, 16, TOKENS, 128)),
    "softmax": (torch.float32, (16, 16, TOKENS, 2)),
    "squares": (torch.float32, (16, TOKENS)),
    "rows": (torch.bfloat16, (TOKENS, 2048)),
    "query": (torch.bfloat16, (16, TOKENS, 128)),
    "own": (torch.bfloat16, (2, 8, TOKENS, 128)),
    "mixed": (torch.bfloat16, (TOKENS, 2048)),
}


class OneLaunch:
    """The expert's layers, without the final norm. One stream at a time: its programs hand things on in one memory.

    Args:
        geometry: Of the expert.
        layers: Their weights, which are read where they lie.
        eps: Of the norms.
    """

    def __init__(self, geometry: DecoderGeometry, layers: Sequence[FusedLayer[Tensor]], eps: float) -> None:
        device = layers[0].qkv.device
        self._layers = layers
        self._constants = (("INNER", geometry.intermediate_size), ("EPSILON", eps))
        self._programs = max(TASKS, geometry.intermediate_size // CHUNK)
        self._scale = math.log2(math.e) / math.sqrt(geometry.head_dim)
        shared = sum(math.prod(shape) * dtype.itemsize for dtype, shape in WORK.values())
        self._work = torch.empty(shared + TOKENS * geometry.intermediate_size * 2, dtype=torch.uint8, device=device)
        self._flags = torch.zeros(len(layers) + 1, FLAGS, dtype=torch.int32, device=device)
        self._pointers: list[list[int]] = []
        self._layers_at = self._flags  # see _table

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
            and self._kernel(context) is not None
        )

    def __call__(self, hidden: Tensor, context: PagedContext) -> None:
        """Replace embeddings [R 64, hidden_size] by the last layer's output."""
        keys, values = context.layers[0].keys, context.layers[0].values
        kernel, table = self._kernel(context), self._table(context.layers)
        assert kernel is not None, "takes() said so"
        for row in range(len(context.cosines)):
            self._flags.zero_()
            kernel.launch(
                (self._programs, 1, 1),
                THREADS,
                (
                    table,
                    len(self._layers),
                    self._flags,
                    self._work,
                    hidden[row * TOKENS :],
                    context.cosines[row],
                    context.sines[row],
                    context.prefixes.block_table[row],
                    context.prefixes.lengths[row:],
                    *keys.stride()[:3],
                    *values.stride()[:3],
                    self._scale,
                ),
                together=True,
            )

    def _kernel(self, context: PagedContext) -> CudaKernel | None:
        block_size = context.layers[0].keys.shape[1]
        return usable_kernel("expert_layers", (*self._constants, ("BLOCK", block_size)), self._work.device)

    def _table(self, caches: Sequence[LayerCache]) -> Tensor:
        """Where each layer's weights, keys and values lie: [layers + 1, 10] int64 on the device.

        The last row gives the norm after the last layer, whose numbers nobody reads.
        """
        rows = [_pointers(layer, cache) for layer, cache in zip(self._layers, caches, strict=True)]
        if rows != self._pointers:
            assert not torch.cuda.is_current_stream_capturing(), "a flow is rehearsed before it is recorded"
            self._pointers = rows
            self._layers_at = torch.tensor([*rows, rows[-1]], device=self._work.device)
        return self._layers_at


def _pointers(layer: FusedLayer[Tensor], cache: LayerCache) -> list[int]:
    norms = layer.head_norms
    tensors = (
        *(layer.qkv, layer.out, layer.gate_up, layer.down),
        *(layer.first_norm, layer.second_norm, norms.query, norms.key),
        *(cache.keys, cache.values),
    )
    return [tensor.data_ptr() for tensor in tensors]
