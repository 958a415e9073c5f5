"""The flow over static buffers: one shape of prefixes and samples, all Euler steps, on CUDA in one captured graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from alpamayo_ros.engine.flow.action_network import FusedActionNetwork
from alpamayo_ros.engine.flow.paged_attention import PagedContext, attention_for
from alpamayo_ros.engine.flow.paged_cache import KVPrefix, LayerCache, PagedPrefixes
from alpamayo_ros.engine.flow.shape import FlowShape
from alpamayo_ros.engine.replayed import GraphMemory, Replayed
from alpamayo_ros.model.action_projection import ACTION_DIMENSIONS
from alpamayo_ros.model.alpamayo import ActionNetwork, AlpamayoNetwork, action_velocity
from alpamayo_ros.model.expert import rotary_angles
from alpamayo_ros.model.flow_matching import Velocity, follow, mix_velocities, time_grid
from alpamayo_ros.model.to_device import to_device


class FlowRunner:
    """Denoises the trajectories of one shape. The numbers of a tick are copied into its buffers.

    Args:
        network: The expert and its projections; on CUDA the fused one.
        layers: The backbone's cache.
        shape: See there.
        tokens: Action tokens of a trajectory.
        max_blocks: Of a prefix.
    """

    def __init__(
        self,
        network: ActionNetwork | AlpamayoNetwork | FusedActionNetwork,
        layers: list[LayerCache],
        shape: FlowShape,
        tokens: int,
        max_blocks: int,
    ) -> None:
        self._network = network
        self._layers = layers
        self.shape = shape
        self._tokens = tokens
        device = layers[0].keys.device
        self._prefixes = PagedPrefixes.empty(shape.rows * (1 + shape.guided), max_blocks, device)
        self._noise = torch.zeros(shape.trajectories, tokens, ACTION_DIMENSIONS, device=device)
        self._weight = torch.ones(1, device=device)
        self._times = time_grid(shape.steps, device)
        self._attend = attention_for(device)
        self._replayed = Replayed[Tensor]()

    def rehearse(self) -> None:
        """Do once what `run` does: it compiles what is compiled on first use."""
        self._flow()

    def capture(self, memory: GraphMemory) -> None:
        """Record the flow on CUDA; from then on `run` replays it, whatever the lengths of the prefixes."""
        self._replayed.capture(self._flow, memory)

    def run(self, prefixes: Sequence[KVPrefix], noise: Tensor, weight: float = 1.0) -> Tensor:
        """Denoise.

        Args:
            prefixes: R or less; when guided, R of them with the route and then R without. What a shape has more of is
                computed and thrown away by the caller.
            noise: [R G or less, N, 2] float32, the samples of one prefix after another.
            weight: Of the guidance.

        Returns:
            [R G, N, 2] float32; the next run overwrites it.
        """
        self._fill(prefixes, noise, weight)
        return self._replayed(self._flow)

    def velocity(self, prefixes: Sequence[KVPrefix], weight: float = 1.0) -> Velocity:
        """The velocity field itself, for looking at single steps."""
        self._fill(prefixes, self._noise, weight)
        return self._field()

    def context(self, prefixes: Sequence[KVPrefix]) -> PagedContext:
        """What the expert reads, for looking into it."""
        self._fill(prefixes, self._noise, 1.0)
        return self._context()

    def _fill(self, prefixes: Sequence[KVPrefix], noise: Tensor, weight: float) -> None:
        table_on_device = self._prefixes.block_table
        table = torch.zeros(table_on_device.shape, dtype=torch.int32)
        for row, prefix in enumerate(prefixes):
            table[row, : len(prefix.block_ids)] = torch.tensor(prefix.block_ids, dtype=torch.int32)
        # queued behind what the device does: nothing here waits for it
        rows, device = len(prefixes), table_on_device.device
        table_on_device.copy_(to_device(table, device))
        lengths = torch.tensor([prefix.length for prefix in prefixes], dtype=torch.int32)
        self._prefixes.lengths[:rows].copy_(to_device(lengths, device))
        first_positions = torch.tensor([prefix.first_position for prefix in prefixes])
        self._prefixes.first_positions[:rows].copy_(to_device(first_positions, device))
        self._noise[: len(noise)].copy_(to_device(noise, device))
        self._weight.fill_(weight)

    def _flow(self) -> Tensor:
        return follow(self._field(), self._noise, self._times).actions

    def _context(self) -> PagedContext:
        geometry = self._network.expert.geometry
        dtype = self._network.action_out_proj.weight.dtype
        cosines, sines = rotary_angles(self._prefixes.first_positions, self._tokens, geometry, dtype)
        return PagedContext(self._prefixes, self._layers, self.shape.samples, cosines, sines, self._attend)

    def _field(self) -> Velocity:
        velocity = action_velocity(self._network, self._context())
        if not self.shape.guided:
            return velocity

        def both(state: Tensor, time: Tensor) -> Tensor:
            guided, unguided = velocity(torch.cat((state, state)), torch.cat((time, time))).chunk(2)
            return mix_velocities(unguided, guided, self._weight)

        return both
