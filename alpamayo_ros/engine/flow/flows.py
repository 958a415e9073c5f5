"""Flows by shape: those that are captured, and others as they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from torch import Tensor

from alpamayo_ros.engine.flow.action_network import FusedActionNetwork
from alpamayo_ros.engine.flow.flow_runner import FlowRunner
from alpamayo_ros.engine.flow.paged_cache import KVPrefix, LayerCache
from alpamayo_ros.engine.flow.shape import FlowShape
from alpamayo_ros.engine.flow.simulated_fp8 import simulate_fp8
from alpamayo_ros.engine.replayed import GraphMemory
from alpamayo_ros.model.alpamayo import ActionNetwork, AlpamayoNetwork


class Flows:
    """Flow runners over one cache.

    Args:
        network: The expert and its projections; on CUDA it shares its weights with a fused one.
        layers: The cache.
        tokens: Action tokens of a trajectory.
        max_tokens: Of a prefix.
        sum_over_ranks: Adds up what each device of a tensor-parallel group has computed; None: there is one.
        in_fp8: The expert's layers are FP8 ones, which are approximate, and are taken out of `network`.
    """

    def __init__(
        self,
        network: ActionNetwork | AlpamayoNetwork,
        layers: list[LayerCache],
        tokens: int,
        max_tokens: int,
        sum_over_ranks: Callable[[Tensor], Tensor] | None = None,
        in_fp8: bool = False,
    ) -> None:
        self.network = network
        self.layers = layers
        self._tokens = tokens
        self._max_blocks = math.ceil(max_tokens / layers[0].keys.shape[1])
        self._flow_network: ActionNetwork | AlpamayoNetwork | FusedActionNetwork = network
        if layers[0].keys.is_cuda:
            fused = FusedActionNetwork
            self._flow_network = fused.in_fp8(network) if in_fp8 else fused.of(network, sum_over_ranks)
        elif in_fp8:
            simulate_fp8(network.expert)
        self._captured: dict[FlowShape, FlowRunner] = {}

    def rehearse(self, shapes: Sequence[FlowShape], done: Callable[[], object]) -> None:
        """Run them once, on the current stream, for what is compiled on first use; `done` is called after each."""
        for shape in shapes:
            self.runner(shape).rehearse()
            done()

    def capture(
        self, shapes: Sequence[FlowShape], memory: GraphMemory, done: Callable[[], object] = lambda: None
    ) -> None:
        """Record shapes on CUDA that aren't yet, the largest first: it sizes the memory that the others share."""
        new = [shape for shape in shapes if shape not in self._captured]
        for shape in sorted(new, key=lambda shape: -shape.trajectories):
            self._captured[shape] = self.runner(shape)
            self._captured[shape].capture(memory)
            done()

    def runner(self, shape: FlowShape) -> FlowRunner:
        """A runner of its own, not captured."""
        return FlowRunner(self._flow_network, self.layers, shape, self._tokens, self._max_blocks)

    def denoise(
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
        runner = self._captured[shape] if shape else self.runner(wanted)
        spare = [prefixes[0]] * (runner.shape.rows - len(prefixes)) if without_route else []
        return runner.run([*prefixes, *spare, *without_route], noise, weight)[: len(noise)]

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
