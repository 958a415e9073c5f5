"""The flow after prefixes in the paged cache: static buffers, all Euler steps, captured by shape on CUDA."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from alpamayo_ros.engine.native.graph import GraphMemory, Replayed
from alpamayo_ros.engine.native.kv_cache import BLOCK_SIZE
from alpamayo_ros.engine.vllm.jobs import FlowShape
from alpamayo_ros.engine.vllm.kv_layout import KVPrefix, LayerCache
from alpamayo_ros.engine.vllm.paged_attention import PagedContext, PagedPrefixes, attend_to_own, attend_to_prefix
from alpamayo_ros.model.action_projection import ACTION_DIMENSIONS
from alpamayo_ros.model.alpamayo import AlpamayoNetwork, action_velocity
from alpamayo_ros.model.expert import Context, rotary_angles
from alpamayo_ros.model.flow_matching import Velocity, follow, mix_velocities, time_grid
from alpamayo_ros.model.pointwise import PLAIN, Pointwise, compiled

CAPTURED_SAMPLES = (1, 6, 16)  # and the most that there can be


@dataclass(frozen=True, eq=False)
class SplitContext:
    """What the expert's layers read, by kernels."""

    prefixes: PagedPrefixes
    layers: list[LayerCache]
    samples: int
    cosines: Tensor
    sines: Tensor
    pointwise: Pointwise
    kernel: Callable[..., Tensor]

    def attend(self, index: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `Context`."""
        layer = self.layers[index]
        return self.kernel(
            query, key, value, layer.keys, layer.values, self.prefixes.block_table, self.prefixes.lengths
        )


class Flow:
    """The trajectories of one shape."""

    def __init__(
        self, network: AlpamayoNetwork, layers: list[LayerCache], shape: FlowShape, tokens: int, max_blocks: int
    ) -> None:
        self.shape = shape
        self._network = network
        self._layers = layers
        self._tokens = tokens
        device = layers[0].keys.device
        self._prefixes = PagedPrefixes.empty(shape.rows * (1 + shape.guided), max_blocks, device)
        self._noise = torch.zeros(shape.trajectories, tokens, ACTION_DIMENSIONS, device=device)
        self._weight = torch.ones(1, device=device)
        self._times = time_grid(shape.steps, device)
        self._replayed = Replayed(self._flow)

    def capture(self, memory: GraphMemory) -> None:
        """Record the flow on CUDA."""
        self._replayed.capture(memory)

    def run(self, prefixes: Sequence[KVPrefix], noise: Tensor, weight: float = 1.0) -> Tensor:
        """Denoise; the next run overwrites the result."""
        self._fill(prefixes, noise, weight)
        return self._replayed()

    def velocity(self, prefixes: Sequence[KVPrefix], weight: float = 1.0) -> Velocity:
        """The velocity field itself, for looking at single steps."""
        self._fill(prefixes, self._noise, weight)
        return self._field()

    def context(self, prefixes: Sequence[KVPrefix]) -> Context:
        """What the expert reads."""
        self._fill(prefixes, self._noise, 1.0)
        return self._context()

    def _fill(self, prefixes: Sequence[KVPrefix], noise: Tensor, weight: float) -> None:
        table = torch.zeros(self._prefixes.block_table.shape, dtype=torch.int32)
        for row, prefix in enumerate(prefixes):
            table[row, : len(prefix.block_ids)] = torch.tensor(prefix.block_ids, dtype=torch.int32)
        self._prefixes.block_table.copy_(table)
        rows = len(prefixes)
        self._prefixes.lengths[:rows].copy_(torch.tensor([prefix.length for prefix in prefixes]))
        self._prefixes.first_positions[:rows].copy_(torch.tensor([prefix.first_position for prefix in prefixes]))
        self._noise[: len(noise)].copy_(noise)
        self._weight.fill_(weight)

    def _flow(self) -> Tensor:
        return follow(self._field(), self._noise, self._times).actions

    def _context(self) -> Context:
        geometry, dtype = self._network.expert.geometry, self._network.action_out_proj.weight.dtype
        angles = rotary_angles(self._prefixes.first_positions, self._tokens, geometry, dtype)
        if self._noise.is_cuda:
            from alpamayo_ros.engine.kernels.split_attention import attend_with_own

            return SplitContext(self._prefixes, self._layers, self.shape.samples, *angles, compiled(), attend_with_own)
        return PagedContext(
            self._prefixes, self._layers, self.shape.samples, *angles, attend_to_prefix, attend_to_own, PLAIN
        )

    def _field(self) -> Velocity:
        velocity = action_velocity(self._network, self._context())
        if not self.shape.guided:
            return velocity

        def both(state: Tensor, time: Tensor) -> Tensor:
            guided, unguided = velocity(torch.cat((state, state)), torch.cat((time, time))).chunk(2)
            return mix_velocities(unguided, guided, self._weight)

        return both


class Flows:
    """Flows by shape: those that are captured, and others as they are asked for.

    Args:
        network: With the expert and its projections.
        layers: The cache.
        tokens: Action tokens of a trajectory.
        max_tokens: Of a prefix.
        steps: Of Euler's method, where they are captured.
        max_samples: Of a tick.
    """

    def __init__(
        self,
        network: AlpamayoNetwork,
        layers: list[LayerCache],
        tokens: int,
        max_tokens: int,
        steps: int,
        max_samples: int,
    ) -> None:
        self.network = network
        self._layers = layers
        self._tokens = tokens
        self._max_blocks = math.ceil(max_tokens / BLOCK_SIZE)
        counts = sorted({min(count, max_samples) for count in (*CAPTURED_SAMPLES, max_samples)})
        rows_and_samples = [(1, count) for count in counts] + [(count, 1) for count in counts if count > 1]
        self._shapes = [FlowShape(*each, guided, steps) for each in rows_and_samples for guided in (False, True)]
        self._captured: dict[FlowShape, Flow] = {}

    def capture(self, memory: GraphMemory) -> None:
        """Record every shape on CUDA, the largest first: it sizes the memory that the others share."""
        for shape in sorted(self._shapes, key=lambda shape: -shape.trajectories):
            self._captured[shape] = self.flow(shape)
            self._captured[shape].capture(memory)

    def flow(self, shape: FlowShape) -> Flow:
        """A flow of its own, not captured."""
        return Flow(self.network, self._layers, shape, self._tokens, self._max_blocks)

    def run(
        self,
        prefixes: Sequence[KVPrefix],
        without_route: Sequence[KVPrefix],
        weight: float,
        samples: int,
        noise: Tensor,
        steps: int,
    ) -> Tensor:
        """Denoise: [R samples, N, 2] float32 for R prefixes."""
        wanted = FlowShape(len(prefixes), samples, bool(without_route), steps)
        shape = self._smallest_captured(wanted)
        flow = self._captured[shape] if shape else self.flow(wanted)
        spare = [prefixes[0]] * (flow.shape.rows - len(prefixes)) if without_route else []
        return flow.run([*prefixes, *spare, *without_route], noise, weight)[: len(noise)]

    def _smallest_captured(self, wanted: FlowShape) -> FlowShape | None:
        """One row may be captured with more samples than wanted; more rows have one sample each, and may be more."""
        fitting = [
            shape
            for shape in self._captured
            if (shape.guided, shape.steps) == (wanted.guided, wanted.steps)
            and (shape.rows == 1) == (wanted.rows == 1)
            and shape.rows >= wanted.rows
            and shape.samples >= wanted.samples
        ]
        return min(fitting, key=lambda shape: shape.trajectories, default=None)
