"""The action expert inside vLLM's worker, where the KV lies. Called by `collective_rpc`, in every rank."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.kv_transfer import get_kv_transfer_group

from alpamayo_ros.engine.flow.flows import Flows
from alpamayo_ros.engine.flow.paged_cache import LayerCache
from alpamayo_ros.engine.vllm import expert_shards
from alpamayo_ros.engine.vllm.connector import PinningConnector
from alpamayo_ros.engine.vllm.faults import room_for
from alpamayo_ros.engine.vllm.jobs import ExpertPlan, ExpertReady, FlowJob
from alpamayo_ros.engine.vllm.kv_layout import read_layers
from alpamayo_ros.engine.vllm.plugin import register
from alpamayo_ros.engine.vllm.random_loader import fill_action_network
from alpamayo_ros.model.alpamayo import ActionNetwork, Constants, open_weights

register()  # a worker that is a process of its own imports this file before it looks for the model class


class ResidentExpert:
    """The expert, loaded, and its runners by shape."""

    def __init__(self, plan: ExpertPlan, layers: list[LayerCache], dtype: torch.dtype, rank: int, ranks: int) -> None:
        config = plan.config
        checkpoint = open_weights(config)
        constants = Constants.of(config, checkpoint, plan.bf16_constants)
        device = layers[0].keys.device
        with torch.device("meta"):
            network = ActionNetwork(config, constants.bf16_frequencies).eval()
        if config.random_seed is None:
            checkpoint.load_into(network, device, dtype)
        else:
            fill_action_network(network, config, constants.bf16_frequencies, device, dtype)
        network.to(device)
        self.parameters = sum(parameter.numel() for parameter in network.parameters())
        self._ranks = ranks
        if ranks > 1:
            expert_shards.keep_shard(network.expert, rank, ranks)
        sum_over_ranks = expert_shards.sum_over_ranks if ranks > 1 else None
        self.network = network
        self.layers = layers
        self._shapes = plan.shapes
        self.flows = Flows(network, layers, config.action_space.n_waypoints, plan.sequence_tokens, sum_over_ranks)

    def capture(self) -> None:
        """Compile and record the flow, on CUDA."""
        device = self.layers[0].keys.device
        if device.type == "cuda":
            with expert_shards.capturing(device) if self._ranks > 1 else nullcontext():
                self.flows.capture(self._shapes, torch.cuda.graph_pool_handle())

    def run(self, job: FlowJob) -> Tensor:
        """Denoise: [K, N, 2] float32 on the CPU."""
        samples = len(job.noise) // len(job.prefixes)
        return self.flows.denoise(job.prefixes, job.unguided, job.weight, samples, job.noise, job.steps).cpu()


class ExpertWorker:
    """Mixed into vLLM's worker class (`worker_extension_cls`)."""

    model_runner: Any
    vllm_config: Any
    rank: int
    _alpamayo: ResidentExpert

    @torch.inference_mode()
    def alpamayo_load(self, plan: ExpertPlan) -> ExpertReady:
        """Load the expert, and prove the cache's layout.

        Raises:
            EngineError: a layout that isn't known, or too little memory.
        """
        layers, layout = self._read_layers()
        ranks = self.vllm_config.parallel_config.tensor_parallel_size
        with room_for("the action expert"):
            self._alpamayo = ResidentExpert(plan, layers, self.vllm_config.model_config.dtype, self.rank, ranks)
        return ExpertReady(self._alpamayo.parameters, layers[0].keys.shape[1], layout)

    @torch.inference_mode()
    def alpamayo_capture(self) -> int:
        """Capture the flow's graphs.

        Returns:
            The bytes that torch holds on this rank's device then, vLLM's included; 0 on a CPU.

        Raises:
            EngineError: too little memory.
        """
        with room_for("the action expert's graphs"):
            self._alpamayo.capture()
        device = self._alpamayo.layers[0].keys.device
        return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0

    def alpamayo_layout(self) -> str:
        """The name of the cache's layout, proved anew; no request may be in the cache.

        Raises:
            EngineError: as in `alpamayo_load`.
        """
        return self._read_layers()[1]

    @torch.inference_mode()
    def alpamayo_flow(self, job: FlowJob) -> Tensor:
        """Denoise a tick's trajectories: [K, N, 2] float32 on the CPU."""
        return self._alpamayo.run(job)

    def alpamayo_release(self, requests: Sequence[str]) -> None:
        """Let go of pinned blocks, once everything that reads them is done."""
        if self._alpamayo.layers[0].keys.device.type == "cuda":
            read = torch.cuda.Event()
            read.record()
            read.synchronize()
        _connector().release(list(requests))

    def alpamayo_allow_trajectory_tokens(self, allowed: bool) -> None:
        """See the model class."""
        self.model_runner.get_model().allow_trajectory_tokens(allowed)

    def _read_layers(self) -> tuple[list[LayerCache], str]:
        attention = self.vllm_config.compilation_config.static_forward_context
        head_dim = self.vllm_config.model_config.get_head_size()
        return read_layers(_connector().kv_caches, attention, head_dim, _said_layout(self.vllm_config))


def _connector() -> PinningConnector:
    connector = get_kv_transfer_group()
    assert isinstance(connector, PinningConnector), "startup.py asks for no other"
    return connector


def _said_layout(vllm_config: Any) -> str:
    """What vLLM says of its cache's layout, for messages."""
    ask = getattr(vllm_config.cache_config, "get_resolved_kv_cache_layout", None)
    return f"layout {ask().name}" if ask is not None else "a vLLM that names no layout"
